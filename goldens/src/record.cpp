// The JSON record of docs/record.md.
#include "h3diff/goldens/compare.hpp"
#include <nlohmann/json.hpp>
#include <algorithm>
#include <cmath>

namespace h3diff::goldens {

using nlohmann::json;

namespace {

constexpr std::size_t text_limit = 1000; // of one string

std::string text(std::string_view value) { return probes::printable(value, text_limit); }

json texts(const std::vector<std::string>& values) {
  json out = json::array();
  for (const auto& value : values)
    out.push_back(text(value));
  return out;
}

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json place(const ProbeResult& result) {
  return {{"step", result.step}, {"probe", text(result.probe)}, {"segment", probes::name(result.segment)}};
}

// First and last over all ranges.
json span_of(const std::vector<std::array<std::int64_t, 2>>& ranges) {
  if (ranges.empty())
    return nullptr;
  return {ranges.front()[0], ranges.back()[1]};
}

json figures(const ProbeResult& result) {
  json out = place(result);
  out["op"] = text(result.op);
  out["outcome"] = name(result.outcome);
  out["reason"] = text(result.reason);
  out["evidence"] = name(result.evidence);
  out["rel_l2"] = number(result.rel_l2);
  out["rel_l2_error"] = number(result.rel_l2_error);
  out["std_ratio"] = number(result.std_ratio);
  out["cosine"] = number(result.cosine);
  out["allowed"] = number(result.tolerance.allowed);
  out["spoiled"] = result.spoiled;
  return out;
}

json first_divergence(const FirstDivergence& first) {
  json out = figures(first.result);
  out.erase("allowed");
  out.erase("spoiled");
  out["rows"] = span_of(first.result.bad_rows);
  out["columns"] = span_of(first.result.bad_columns);
  out["row_ranges"] = first.result.bad_rows;
  out["column_ranges"] = first.result.bad_columns;
  out["tolerance"] = {{"allowed", number(first.result.tolerance.allowed)},
                      {"arithmetic", text(first.result.tolerance.arithmetic)}};
  out["last_good"] = text(first.last_good);
  out["ops_between"] = texts(first.ops_between);
  out["probe_next"] = texts(first.probe_next);
  out["worst"] = json::array();
  for (const auto& element : first.worst)
    out["worst"].push_back({{"index", {element.row, element.column}},
                            {"reference", number(element.reference)},
                            {"candidate", number(element.candidate)},
                            {"hex", {element.reference_hex, element.candidate_hex}}});
  out["spoils_first"] = first.spoils_first ? figures(*first.spoils_first) : json(nullptr);
  out["repro"] = text(first.repro);
  return out;
}

// One entry per (step, probe, outcome); its segments listed.
json culprits(const std::vector<ProbeResult>& results) {
  json out = json::array();
  for (const auto& result : results) {
    const std::string probe = text(result.probe);
    json* entry = nullptr;
    for (auto at = out.rbegin(); at != out.rend() && !entry; ++at)
      if ((*at)["step"] == result.step && (*at)["probe"] == probe && (*at)["outcome"] == name(result.outcome))
        entry = &*at;
      else if ((*at)["step"] != result.step)
        break;
    if (!entry) {
      out.push_back({{"step", result.step},
                     {"probe", probe},
                     {"op", text(result.op)},
                     {"outcome", name(result.outcome)},
                     {"segments", json::array()},
                     {"reason", text(result.reason)},
                     {"rel_l2", number(result.rel_l2)},
                     {"columns", span_of(result.bad_columns)},
                     {"rows", span_of(result.bad_rows)}});
      entry = &out.back();
    }
    (*entry)["segments"].push_back(probes::name(result.segment));
  }
  return out;
}

} // namespace

json to_json(const CompareResult& result) {
  json out;
  out["verdict"] = result.exit_code == ExitCode::ok ? "pass" : std::string(name(result.verdict));
  out["exit_code"] = static_cast<int>(result.exit_code);
  out["reference"] = text(result.reference_path);
  out["candidate"] = text(result.candidate_path);
  out["coverage"] = {{"compared", result.compared}, {"expected", result.expected}};
  out["first_difference"] = result.first_difference ? place(*result.first_difference) : json(nullptr);
  out["first_divergence"] = result.first_divergence ? first_divergence(*result.first_divergence) : json(nullptr);
  out["culprits"] = culprits(result.culprits);
  out["hypotheses"] = json::array();
  for (const auto& hypothesis : result.hypotheses)
    out["hypotheses"].push_back({{"kind", text(hypothesis.kind)},
                                 {"evidence", text(hypothesis.evidence)},
                                 {"confirm", text(hypothesis.confirm)}});
  out["notes"] = texts(result.notes);
  out["probes"] = json::array();
  for (const auto& probe : result.probes)
    out["probes"].push_back(figures(probe));
  return out;
}

} // namespace h3diff::goldens
