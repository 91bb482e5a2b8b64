// How far a probe may be from the reference. Provisional: a rule by dtype and depth, until envelopes are measured.
// Nothing else in goldens/ knows how a limit comes about.
#pragma once
#include "h3diff/goldens/compare.hpp"
#include "h3diff/probes/graph.hpp"

namespace h3diff::goldens {

struct ToleranceContext {
  const probes::Graph* graph = nullptr;
  double factor = 1;                                             // CompareOptions::factor
  std::optional<probes::DType> reference_claim, candidate_claim; // the runs' compute dtypes, where they say so
};

// Residual blocks of the main stack that lie on the data path before this probe.
std::int64_t blocks_passed(const probes::ProbeInfo&, std::int32_t step, const probes::ModelShape&);

// `info` may be null (a probe that the graph does not know).
Tolerance tolerance(const ToleranceContext&, const probes::ProbeInfo* info, std::int32_t step,
                    const probes::IndexRow& reference, const probes::IndexRow& candidate);

} // namespace h3diff::goldens
