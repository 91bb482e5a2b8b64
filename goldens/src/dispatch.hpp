// What ran against what the run's own profile declares. Looked at before any tensor.
#pragma once
#include "h3diff/goldens/compare.hpp"
#include "h3diff/probes/dump.hpp"
#include "h3diff/probes/graph.hpp"

namespace h3diff::goldens {

// A run's ops that fell back, or that another implementation served than the declared one; each a `dispatch` result.
std::vector<ProbeResult> judge_dispatch(const probes::DumpReader&, const std::string& which, const probes::Graph&);

// Choices that the two runs declare differently: told, not judged.
std::vector<std::string> declared_differences(const probes::DumpReader& reference, const probes::DumpReader& candidate);

} // namespace h3diff::goldens
