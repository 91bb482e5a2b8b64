// Reporters of a comparison, one file each.
#pragma once
#include "h3diff/goldens/compare.hpp"
#include "terminal.hpp"
#include <string>

namespace h3diff::cli {

// What a person sees: the verdict, the first divergence with its evidence, a table around it, the other culprits,
// hypotheses, notes, what to run next. `all` lists every probe and every culprit. (report_text.cpp)
std::string comparison_text(const goldens::CompareResult&, const Ink&, bool all);

// Writes the JSON record. `code` unless writing failed. (report_json.cpp)
int write_comparison(const goldens::CompareResult&, const std::string& path, int code);

} // namespace h3diff::cli
