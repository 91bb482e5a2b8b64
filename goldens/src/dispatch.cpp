#include "dispatch.hpp"
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>

namespace h3diff::goldens {

using probes::printable;

std::vector<ProbeResult> judge_dispatch(const probes::DumpReader& dump, const std::string& which,
                                        const probes::Graph& graph) {
  std::vector<ProbeResult> out;
  for (const auto& row : dump.dispatch()) {
    const bool other = !row.declared.empty() && row.implementation != row.declared && row.calls > 0;
    if (row.fallbacks <= 0 && !other)
      continue;
    ProbeResult result;
    result.outcome = Outcome::dispatch;
    result.op = row.op;
    result.rel_l2 = result.rel_l2_error = result.std_ratio = result.cosine = std::numeric_limits<double>::quiet_NaN();
    // "int8_linear" serves the graph's "linear" probes.
    for (const auto& info : graph.probes())
      if (!info.weight && (info.op == row.op || row.op.ends_with("_" + info.op))) {
        result.probe = info.name;
        break;
      }
    if (result.probe.empty())
      result.probe = row.op;
    result.reason = fmt::format("the {}'s {} was served by {} ({} calls", which, printable(row.op),
                                printable(row.implementation), row.calls);
    if (row.fallbacks > 0)
      result.reason += fmt::format(", {} of them fell back", row.fallbacks);
    result.reason += ")";
    if (other)
      result.reason += fmt::format(", its profile declares {}", printable(row.declared));
    out.push_back(std::move(result));
  }
  return out;
}

std::vector<std::string> declared_differences(const probes::DumpReader& reference,
                                              const probes::DumpReader& candidate) {
  const auto declared = [](const probes::DumpReader& dump) {
    std::map<std::string, std::set<std::string>> choices;
    for (const auto& row : dump.dispatch())
      if (!row.declared.empty())
        choices[row.op].insert(printable(row.declared));
    return choices;
  };
  std::vector<std::string> notes;
  const auto left = declared(reference), right = declared(candidate);
  for (const auto& [op, choice] : left) {
    const auto other = right.find(op);
    if (other == right.end() || other->second == choice)
      continue;
    notes.push_back(fmt::format("{} is declared as {} against {}", printable(op), fmt::join(choice, ", "),
                                fmt::join(other->second, ", ")));
  }
  return notes;
}

} // namespace h3diff::goldens
