#include "align.hpp"
#include "h3diff/probes/aliases.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

namespace h3diff::goldens {

namespace {

constexpr int unknown_position = std::numeric_limits<int>::max(); // after all known probes of a step

using PairKey = std::tuple<std::int32_t, int, std::string>; // step, graph position, name

class Names {
public:
  Names(const probes::Graph& graph, const probes::DumpReader& dump) : graph_(graph), pipeline_(dump.fact("pipeline")) {}
  const std::string& operator()(const std::string& name) {
    auto [found, fresh] = known_.try_emplace(name);
    if (fresh)
      found->second = canonical_name(graph_, name, pipeline_);
    return found->second;
  }

private:
  const probes::Graph& graph_;
  std::string pipeline_;
  std::unordered_map<std::string, std::string> known_;
};

using Order = std::map<std::pair<std::int32_t, std::string>, std::size_t>; // where a dump has a probe of a step

struct Side {
  Order order;
  std::int64_t fused = 0; // rows that a later row of the same probe replaces
};

template <class Slot>
Side place(const probes::DumpReader& dump, const probes::Graph& graph, std::map<PairKey, ProbePair>& pairs, Slot slot) {
  Side side;
  Names names(graph, dump);
  const auto& index = dump.index();
  for (std::size_t i = 0; i < index.size(); ++i) {
    const auto& row = index[i];
    const std::string& probe = names(row.probe);
    const int known = graph.position(probe);
    ProbePair& pair = pairs[PairKey{row.step, known < 0 ? unknown_position : known, probe}];
    pair.step = row.step;
    pair.probe = probe;
    pair.info = graph.find(probe);
    auto at = std::find_if(pair.segments.begin(), pair.segments.end(),
                           [&](const SegmentPair& s) { return s.segment == row.segment; });
    if (at == pair.segments.end())
      at = pair.segments.insert(at, SegmentPair{row.segment, nullptr, nullptr});
    if (slot(*at))
      ++side.fused;
    slot(*at) = &row;
    side.order.insert_or_assign({row.step, probe}, i);
  }
  return side;
}

// The inputs of `info` within its step that both dumps saw; unobserved ones are replaced by their own inputs.
void inputs_seen(const probes::ProbeInfo& info, std::int32_t step, const probes::Graph& graph, const Order& reference,
                 const Order& candidate, std::set<std::string>& visited, std::vector<std::string>& out) {
  for (const auto& input : info.inputs) {
    if (input.previous_step || !visited.insert(input.probe).second)
      continue;
    const auto* source = graph.find(input.probe);
    if (!source || source->weight)
      continue;
    if (reference.contains({step, input.probe}) && candidate.contains({step, input.probe}))
      out.push_back(input.probe);
    else
      inputs_seen(*source, step, graph, reference, candidate, visited, out);
  }
}

// Only an order that contradicts the data flow is an outcome: an op that ran before something it reads.
void find_reordered(const probes::Graph& graph, const Order& reference, const Order& candidate,
                    std::map<PairKey, ProbePair>& pairs) {
  for (auto& [key, pair] : pairs) {
    const std::pair<std::int32_t, std::string> here{pair.step, pair.probe};
    const auto in_reference = reference.find(here);
    const auto in_candidate = candidate.find(here);
    if (!pair.info || in_reference == reference.end() || in_candidate == candidate.end())
      continue;
    std::set<std::string> visited;
    std::vector<std::string> inputs;
    inputs_seen(*pair.info, pair.step, graph, reference, candidate, visited, inputs);
    for (const auto& input : inputs) {
      if (candidate.at({pair.step, input}) > in_candidate->second &&
          reference.at({pair.step, input}) < in_reference->second) {
        pair.reordered_before = input;
        break;
      }
    }
  }
}

// The first probe that the two dumps list in another order, of those that both have.
std::string first_other_order(const Order& reference, const Order& candidate) {
  std::vector<std::pair<std::size_t, std::size_t>> both; // (reference, candidate) positions
  std::vector<const std::pair<std::int32_t, std::string>*> keys;
  for (const auto& [key, position] : reference)
    if (const auto other = candidate.find(key); other != candidate.end()) {
      both.emplace_back(position, other->second);
      keys.push_back(&key);
    }
  std::vector<std::size_t> order(both.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return both[a].first < both[b].first; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (both[order[i]].second < both[order[i - 1]].second)
      return fmt::format("{} at step {}", probes::printable(keys[order[i]]->second), keys[order[i]]->first);
  return "";
}

} // namespace

std::string canonical_name(const probes::Graph& graph, const std::string& name, const std::string& pipeline) {
  if (graph.find(name))
    return name;
  const auto& tables = probes::builtin_aliases();
  const auto ask = [&](bool own) -> std::optional<std::string> {
    for (const auto& table : tables)
      if ((table.port() == pipeline) == own)
        if (auto canonical = table.canonical(name); canonical && graph.find(*canonical))
          return canonical;
    return std::nullopt;
  };
  if (auto own = ask(true))
    return *own;
  if (auto other = ask(false))
    return *other;
  return name;
}

Alignment align(const probes::DumpReader& reference, const probes::DumpReader& candidate, const probes::Graph& graph) {
  Alignment alignment;
  std::map<PairKey, ProbePair> pairs;
  const Side left = place(
      reference, graph, pairs, [](SegmentPair & s) -> auto& { return s.reference; });
  const Side right = place(
      candidate, graph, pairs, [](SegmentPair & s) -> auto& { return s.candidate; });
  if (right.fused > 0)
    alignment.notes.push_back(fmt::format("{} rows of the candidate are followed by a later row of the same probe "
                                          "(fused ops); the last one counts",
                                          right.fused));

  find_reordered(graph, left.order, right.order, pairs);
  if (const auto other = first_other_order(left.order, right.order); !other.empty())
    alignment.notes.push_back("the two runs list their probes in different orders, first at " + other);

  Names names(graph, candidate);
  std::vector<probes::Unobserved> unobserved = candidate.unobserved();
  for (auto& entry : unobserved)
    entry.probe = names(entry.probe);
  alignment.pairs.reserve(pairs.size());
  for (auto& [key, pair] : pairs) {
    std::sort(pair.segments.begin(), pair.segments.end(),
              [](const SegmentPair& a, const SegmentPair& b) { return a.segment < b.segment; });
    const bool complete = std::all_of(pair.segments.begin(), pair.segments.end(),
                                      [](const SegmentPair& s) { return s.candidate != nullptr; });
    for (const auto& entry : unobserved)
      if (!complete && probes::glob_match(entry.probe, pair.probe)) {
        pair.declared_unobserved = true;
        pair.unobserved = entry.reason;
        break;
      }
    alignment.pairs.push_back(std::move(pair));
  }
  return alignment;
}

} // namespace h3diff::goldens
