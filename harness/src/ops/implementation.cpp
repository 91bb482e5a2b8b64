#include "ops/implementation.hpp"

#include <fmt/format.h>

namespace h3diff::harness::ops {

Constraint floating_dtypes() {
  return {"compute dtype float32 or bfloat16", [](const Context& context) {
            using probes::DType;
            return context.compute_dtype == DType::float32 || context.compute_dtype == DType::bfloat16;
          }};
}

Result<Choice> choose(std::string_view op, std::span<const Candidate> known, std::string_view declared,
                      const Context& context) {
  Choice choice;
  const std::string_view first = declared.substr(0, declared.find('|'));
  choice.row.op = op;
  choice.row.declared = first;
  std::string refusals;
  for (std::string_view rest = declared; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('|'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    std::size_t index = 0;
    while (index < known.size() && known[index].name != name)
      ++index;
    if (index == known.size()) {
      std::string names;
      for (const Candidate& candidate : known)
        names += (names.empty() ? "" : ", ") + std::string(candidate.name);
      return usage_error(fmt::format("op {} has no implementation '{}' (known: {})", op, name, names));
    }
    const Constraint* broken = nullptr;
    for (const Constraint& constraint : known[index].constraints)
      if (broken == nullptr && !constraint.holds(context))
        broken = &constraint;
    if (broken == nullptr) {
      choice.chosen = index;
      choice.row.implementation = name;
      choice.fallback = name != first;
      return choice;
    }
    refusals += fmt::format("{}op {}, implementation {}: the constraint '{}' does not hold",
                            refusals.empty() ? "" : "; ", op, name, broken->text);
  }
  return environment_error(refusals.empty() ? fmt::format("no implementation is named for op {}", op) : refusals);
}

} // namespace h3diff::harness::ops
