// Named causes, each by a rule that two dumps can settle or strongly support. docs/outcomes.md lists them.
#pragma once
#include "judge.hpp"
#include "h3diff/goldens/compare.hpp"
#include <vector>

namespace h3diff::goldens {

struct Findings {
  const JudgeContext& context;
  const Alignment& alignment;
  const std::vector<ProbeResult>& results;  // localised
  const std::vector<std::size_t>& culprits; // into results
  // Where results[i] comes from.
  std::function<std::pair<const ProbePair*, const SegmentPair*>(std::size_t)> source;
};

std::vector<Hypothesis> hypotheses(const Findings&);

} // namespace h3diff::goldens
