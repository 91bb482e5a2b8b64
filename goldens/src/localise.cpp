#include "localise.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>

namespace h3diff::goldens {

namespace {

std::uint64_t key(const Place& place) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(place.step)) << 32) |
         (static_cast<std::uint64_t>(place.probe) << 4) | static_cast<std::uint64_t>(place.segment);
}

bool judged(const ProbeResult& result) { return is_inside(result.outcome) || is_outside(result.outcome); }

bool is_weight(const probes::Graph& graph, const Place& place) {
  return graph.probes()[static_cast<std::size_t>(place.probe)].weight;
}

const std::string& name_at(const probes::Graph& graph, int position) {
  return graph.probes()[static_cast<std::size_t>(position)].name;
}

} // namespace

ResultMap::ResultMap(const probes::Graph& graph, const std::vector<ProbeResult>& results)
    : graph_(graph), results_(results) {
  index_.reserve(results.size());
  for (std::size_t i = 0; i < results.size(); ++i)
    if (const auto where = place(results[i]))
      index_.emplace(key(*where), i);
}

const ProbeResult* ResultMap::at(const Place& place) const {
  const auto found = index_.find(key(place));
  return found == index_.end() ? nullptr : &results_[found->second];
}

std::optional<Place> ResultMap::place(const ProbeResult& result) const {
  const int position = graph_.position(result.probe);
  if (position < 0)
    return std::nullopt;
  return Place{result.step, position, result.segment};
}

Lineage ResultMap::inputs(const ProbeResult& result) const {
  const auto where = place(result);
  if (!where)
    return {};
  return lineage(graph_, *where, [this](const Place& input) {
    const auto* found = at(input);
    return found && judged(*found);
  });
}

Localisation localise(std::vector<ProbeResult>& results, const probes::Graph& graph) {
  Localisation out;
  const ResultMap map(graph, results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    ProbeResult& result = results[i];
    const bool differs = !result.identical && (judged(result) || result.outcome == Outcome::stale);
    if (!out.first_difference && differs)
      out.first_difference = i;
    if (!is_outside(result.outcome))
      continue;
    for (const Place& input : map.inputs(result).observed)
      if (is_outside(map.at(input)->outcome)) {
        result.spoiled = true;
        break;
      }
    if (!result.spoiled)
      out.culprits.push_back(i);
  }
  // Inputs come first: where they drift at the first step, nothing else is a cause.
  for (const std::size_t culprit : out.culprits)
    if (results[culprit].outcome == Outcome::input_drift && results[culprit].step == 0) {
      out.first_divergence = culprit;
      return out;
    }
  if (!out.culprits.empty()) {
    out.first_divergence = out.culprits.front();
    return out;
  }
  // Outside results that only blame each other (a reordered dump can do that): the earliest.
  for (std::size_t i = 0; i < results.size(); ++i)
    if (is_outside(results[i].outcome)) {
      out.first_divergence = i;
      out.culprits.push_back(i);
      results[i].spoiled = false;
      break;
    }
  return out;
}

FirstDivergence explain(const std::vector<ProbeResult>& results, std::size_t first, const probes::Graph& graph) {
  const ResultMap map(graph, results);
  FirstDivergence out;
  out.result = results[first];
  const auto where = map.place(out.result);
  if (!where)
    return out;
  const Lineage inputs = map.inputs(out.result);

  for (const Place& input : inputs.observed) { // ascending, and weights have step -1: activations win
    if (is_inside(map.at(input)->outcome))
      out.last_good = name_at(graph, input.probe);
  }
  for (const int passed : inputs.unobserved)
    out.ops_between.push_back(name_at(graph, passed));

  if (out.result.outcome != Outcome::input_drift) {
    if (!out.ops_between.empty()) {
      out.probe_next = out.ops_between;
    } else {
      for (const int weight : inputs.unobserved_weights)
        out.probe_next.push_back(name_at(graph, weight));
      if (out.result.evidence != Evidence::tensors) {
        std::set<std::string> named(out.probe_next.begin(), out.probe_next.end());
        for (const Place& input : inputs.observed)
          if (!is_weight(graph, input) && named.insert(name_at(graph, input.probe)).second)
            out.probe_next.push_back(name_at(graph, input.probe));
        out.probe_next.push_back(out.result.probe);
      }
    }
  }

  if (is_weight(graph, *where)) {
    for (const ProbeResult& result : results) {
      if (!is_outside(result.outcome) || result.step < 0)
        continue;
      const auto observed = map.inputs(result).observed;
      if (std::find(observed.begin(), observed.end(), *where) != observed.end()) {
        out.spoils_first = result;
        break;
      }
    }
  }
  return out;
}

std::vector<std::string> healing(const std::vector<ProbeResult>& results, const std::vector<std::size_t>& culprits,
                                 const probes::Graph& graph) {
  const ResultMap map(graph, results);
  std::map<Place, std::size_t> suspects;
  for (const std::size_t culprit : culprits) {
    const auto where = map.place(results[culprit]);
    const bool candidate = where && !is_weight(graph, *where) && results[culprit].op != "input" &&
                           (results[culprit].outcome == Outcome::diverged);
    if (candidate)
      suspects.emplace(*where, culprit);
  }
  std::map<Place, std::pair<std::string, bool>> consumers; // the first one that reads it; is every one inside?
  if (!suspects.empty())
    for (const ProbeResult& result : results) {
      if (!judged(result) || result.step < 0)
        continue;
      for (const Place& input : map.inputs(result).observed) {
        if (!suspects.contains(input))
          continue;
        auto [entry, fresh] = consumers.try_emplace(input, result.probe, true);
        entry->second.second = entry->second.second && is_inside(result.outcome);
      }
    }
  std::vector<std::string> notes;
  for (const auto& [where, consumer] : consumers)
    if (consumer.second) {
      const auto& result = results[suspects.at(where)];
      notes.push_back(
          fmt::format("{}, step {}, {}: an error that heals: all that reads it, {} first, is inside; look for "
                      "a misaligned probe before a faulty op",
                      probes::printable(result.probe), result.step, probes::name(result.segment), consumer.first));
    }
  return notes;
}

} // namespace h3diff::goldens
