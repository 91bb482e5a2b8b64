// The option --zero-columns PATTERN:BEGIN-END: columns BEGIN to END - 1 of matching weights are set to 0 after loading.
#pragma once
#include "h3diff/probes/graph.hpp"
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <string>
#include <string_view>

namespace h3diff::harness {

struct ZeroColumns {
  std::string pattern; // "" for none
  std::int64_t begin = 0, end = 0;

  static Result<ZeroColumns> parse(std::string_view text); // usage error
  // usage error: the pattern matches no 2-D weight, or one with fewer columns than END.
  Result<void> check(const probes::Graph&) const;
  // `probe` is a weight probe's name. The pattern is a glob over module paths or over their last components.
  bool matches(std::string_view probe) const;
};

} // namespace h3diff::harness
