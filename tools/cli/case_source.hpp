// CASE on the command line: a known name, or a JSON file.
#pragma once
#include "h3diff/cases/case_spec.hpp"
#include "h3diff/probes/result.hpp"
#include <string>

namespace h3diff::cli {

// A text with a '/' or ending in ".json" is a file, anything else a name.
Result<cases::CaseSpec> read_case(const std::string& name_or_file);

} // namespace h3diff::cli
