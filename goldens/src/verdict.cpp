#include "verdict.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>

namespace h3diff::goldens {

namespace {

bool gates(Outcome outcome) {
  switch (outcome) {
  case Outcome::missing:
  case Outcome::no_golden:
  case Outcome::stale:
  case Outcome::ungated:
  case Outcome::mistrusted:
  case Outcome::skipped: return true;
  default: return false;
  }
}

} // namespace

Result<Expectation> Expectation::make(const std::vector<std::string>& patterns, const Alignment& alignment,
                                      const probes::Graph& graph) {
  Expectation out;
  std::set<std::string> in_reference;
  std::set<std::int32_t> steps;
  for (const auto& pair : alignment.pairs)
    for (const auto& segment : pair.segments)
      if (segment.reference) {
        in_reference.insert(pair.probe);
        steps.insert(pair.step);
      }
  for (const auto& pattern : patterns) {
    const bool unwanted = pattern.starts_with('!');
    const std::string glob = unwanted ? pattern.substr(1) : pattern;
    const auto hits = [&](const auto& name) { return probes::glob_match(glob, name); };
    const bool known =
        std::any_of(in_reference.begin(), in_reference.end(), hits) ||
        std::any_of(graph.probes().begin(), graph.probes().end(), [&](const auto& p) { return hits(p.name); });
    if (!known)
      return usage_error(
          fmt::format("--expect {}: no probe of this model or of the reference matches", probes::printable(pattern)));
    (unwanted ? out.unwanted_ : out.wanted_).push_back(glob);
    const auto* info = graph.find(glob);
    if (unwanted || !info || in_reference.contains(glob))
      continue;
    if (info->weight) {
      out.absent_.emplace_back(-1, glob);
      continue;
    }
    bool any = false;
    for (const auto step : steps)
      if (step >= 0) {
        out.absent_.emplace_back(step, glob);
        any = true;
      }
    if (!any)
      out.absent_.emplace_back(0, glob);
  }
  out.everything_ = out.wanted_.empty();
  return out;
}

bool Expectation::expects(const std::string& probe) const {
  const auto hits = [&](const std::string& glob) { return probes::glob_match(glob, probe); };
  if (std::any_of(unwanted_.begin(), unwanted_.end(), hits))
    return false;
  return everything_ || std::any_of(wanted_.begin(), wanted_.end(), hits);
}

void conclude(CompareResult& result, const Alignment& alignment, const Expectation& expectation) {
  // How many segments of each pair of the reference were judged.
  std::map<std::pair<std::int32_t, std::string>, std::int64_t> judged;
  const ProbeResult* gate = nullptr;
  bool all_bitwise = true;
  for (const auto& probe : result.probes) {
    if (is_inside(probe.outcome) || is_outside(probe.outcome))
      ++judged[{probe.step, probe.probe}];
    if (!gate && gates(probe.outcome) && expectation.expects(probe.probe))
      gate = &probe;
    all_bitwise = all_bitwise && (probe.outcome == Outcome::bitwise || probe.outcome == Outcome::extra);
  }
  result.compared = 0;
  result.expected = static_cast<std::int64_t>(expectation.absent().size());
  for (const auto& pair : alignment.pairs) {
    std::int64_t segments = 0;
    for (const auto& segment : pair.segments)
      segments += segment.reference != nullptr;
    if (segments == 0 || !expectation.expects(pair.probe))
      continue;
    ++result.expected;
    const auto found = judged.find({pair.step, pair.probe});
    result.compared += found != judged.end() && found->second >= segments;
  }
  for (const auto& [step, probe] : expectation.absent())
    result.notes.push_back(fmt::format("{}, step {}: expected, but the reference does not have it", probe, step));

  if (result.first_divergence) {
    result.verdict = result.first_divergence->result.outcome;
    result.exit_code = ExitCode::mismatch;
  } else if (gate) {
    result.verdict = gate->outcome;
    result.exit_code = ExitCode::no_evidence;
  } else if (result.expected == 0 || result.compared < result.expected) {
    if (result.expected == 0)
      result.notes.push_back("nothing was compared: the reference has no expected probe");
    result.verdict = Outcome::missing;
    result.exit_code = ExitCode::no_evidence;
  } else {
    result.verdict = all_bitwise ? Outcome::bitwise : Outcome::within;
    result.exit_code = ExitCode::ok;
  }
}

} // namespace h3diff::goldens
