// A child process, its output, and what it cost.
#pragma once
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <string>
#include <vector>

namespace h3diff::cli {

struct ChildResult {
  int exit_code = 0;           // 128 + signal if a signal ended it
  double seconds = 0;          // wall clock
  std::int64_t peak_bytes = 0; // largest resident set
  std::string output;          // standard output
};

// Runs words[0] (looked up in PATH) with the given arguments; standard error is inherited, or thrown away.
// environment error if it cannot be started.
Result<ChildResult> run_child(const std::vector<std::string>& words, bool quiet_errors = false);

} // namespace h3diff::cli
