// Gives one (step, probe, segment) its outcome.
#pragma once
#include "align.hpp"
#include "columns.hpp"
#include "distance.hpp"
#include "tolerance.hpp"
#include "h3diff/goldens/compare.hpp"
#include <functional>

namespace h3diff::goldens {

struct JudgeContext {
  const probes::DumpReader& reference;
  const probes::DumpReader& candidate;
  const probes::Graph& graph;
  ToleranceContext tolerance;
  std::string version_differs; // a fact that makes digests incomparable: "torch 2.11.0 against 2.10.0"; empty if none
  int threads = 2;
  double slack = cpu_slack; // what statistics and sketches of these two producers may be off by
  // Are the reference's neighbours of this row alive (not constant)? Asked only for constant rows.
  std::function<bool(const ProbePair&, probes::Segment)> neighbours_alive;
};

Result<ProbeResult> judge(const JudgeContext&, const ProbePair&, const SegmentPair&);

// Constant or all zero, as far as its statistics tell.
bool is_constant(const probes::IndexRow&);

// Per-column judgement of a weight, if both dumps have what it needs.
ColumnsVerdict columns_of(const JudgeContext&, const ProbePair&, const probes::IndexRow& reference,
                          const probes::IndexRow& candidate, double allowed);

// The two captured tensors, where both dumps have them and they can be read in step.
Result<std::optional<TensorPair>> tensors_of(const JudgeContext&, const probes::IndexRow& reference,
                                             const probes::IndexRow& candidate);

} // namespace h3diff::goldens
