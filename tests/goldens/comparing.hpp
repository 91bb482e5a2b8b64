#pragma once
#include "run_builder.hpp"
#include "h3diff/goldens/compare.hpp"
#include <gtest/gtest.h>
#include <algorithm>

namespace h3diff::testing {

inline goldens::CompareResult compare_runs(const SampleRun& reference, const SampleRun& candidate,
                                           const goldens::CompareOptions& options = {}) {
  const auto left = reference.write("reference.h5"), right = candidate.write("candidate.h5");
  auto result = goldens::compare(left, right, options);
  if (!result) {
    ADD_FAILURE() << result.error().message;
    return {};
  }
  return *result;
}

inline const goldens::ProbeResult* find(const goldens::CompareResult& result, std::int32_t step,
                                        const std::string& probe, Segment segment) {
  for (const auto& row : result.probes)
    if (row.step == step && row.probe == probe && row.segment == segment)
      return &row;
  return nullptr;
}

inline goldens::Outcome outcome(const goldens::CompareResult& result, std::int32_t step, const std::string& probe,
                                Segment segment) {
  const auto* row = find(result, step, probe, segment);
  if (!row) {
    ADD_FAILURE() << "no result for " << probe;
    return goldens::Outcome::tool_error;
  }
  return row->outcome;
}

inline std::set<std::string> culprit_names(const goldens::CompareResult& result) {
  std::set<std::string> names;
  for (const auto& culprit : result.culprits)
    names.insert(culprit.probe);
  return names;
}

inline bool has_note(const goldens::CompareResult& result, const std::string& part) {
  return std::any_of(result.notes.begin(), result.notes.end(),
                     [&](const auto& note) { return note.find(part) != std::string::npos; });
}

} // namespace h3diff::testing
