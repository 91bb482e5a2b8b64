// Op registry: every op has named implementations with declared constraints. Dispatch is fail-closed: a constraint
// that does not hold is an error that names op, implementation and constraint.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include "h3diff/probes/dump.hpp"
#include "h3diff/probes/graph.hpp"
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace h3diff::harness::ops {

// What a run knows before its first op: constraints are checked against it once, not at every call.
struct Context {
  bool cuda = false;
  int sm = 0; // compute capability times 10; 0 on the CPU
  probes::DType compute_dtype = probes::DType::float32;
  probes::DType island_dtype = probes::DType::float32;
  probes::ModelShape shape;
};

struct Constraint {
  const char* text; // a fact that must hold, as the error prints it: "rotary width at most the head's"
  bool (*holds)(const Context&);
};

// The constraint of an op that any torch device runs in these dtypes.
Constraint floating_dtypes();

template <class Function> struct Implementation {
  const char* name;
  std::vector<Constraint> constraints;
  Function function;
};

// One chosen implementation, and how often it ran. Function is a function pointer or a struct of them.
template <class Function> class Op {
public:
  Op() = default;
  Op(Function function, probes::DispatchRow row, bool fallback)
      : function_(function), row_(std::move(row)), fallback_(fallback) {}
  // The implementation, counting one call.
  const Function& use() {
    ++row_.calls;
    row_.fallbacks += fallback_ ? 1 : 0;
    return function_;
  }
  template <class... Arguments> auto operator()(Arguments&&... arguments) {
    return use()(static_cast<Arguments&&>(arguments)...);
  }
  const Function& chosen() const { return function_; } // without counting
  const probes::DispatchRow& row() const { return row_; }

private:
  Function function_{};
  probes::DispatchRow row_;
  bool fallback_ = false;
};

// Which of `known` the profile's text `declared` picks. "a" picks a alone; "a|b" allows b where a constraint of a
// does not hold, which is then counted as a fallback. On success `chosen` is an index into `known`.
struct Candidate {
  std::string_view name;
  std::span<const Constraint> constraints;
};
struct Choice {
  std::size_t chosen = 0;
  probes::DispatchRow row;
  bool fallback = false;
};
// usage error: no such implementation; environment error: a constraint does not hold.
Result<Choice> choose(std::string_view op, std::span<const Candidate> known, std::string_view declared, const Context&);

template <class Function> Result<Op<Function>> select(std::string_view op,
                                                      std::span<const Implementation<Function>> known,
                                                      std::string_view declared, const Context& context) {
  std::vector<Candidate> candidates;
  for (const auto& implementation : known)
    candidates.push_back({implementation.name, implementation.constraints});
  Result<Choice> choice = choose(op, candidates, declared, context);
  if (!choice)
    return choice.error();
  return Op<Function>(known[choice->chosen].function, std::move(choice->row), choice->fallback);
}

} // namespace h3diff::harness::ops
