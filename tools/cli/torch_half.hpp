// The verbs that need libtorch live in h3diff-torch, which is looked for beside this program.
#pragma once
#include "h3diff/probes/result.hpp"
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace h3diff::cli {

std::string self_path();                      // this program's file
std::optional<std::string> torch_half_path(); // nullopt if it is not installed

// Replaces this process by h3diff-torch with the same words, so that signals and the exit code are its own.
// Returns only on failure.
Error exec_torch_half(const std::vector<std::string>& words);

// What h3diff-torch says of its libtorch and devices, as JSON. environment error if it does not start.
Result<nlohmann::json> torch_facts_of_half();

} // namespace h3diff::cli
