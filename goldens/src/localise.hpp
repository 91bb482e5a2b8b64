// From outcomes to the first divergence and the culprits.
#pragma once
#include "lineage.hpp"
#include "h3diff/goldens/compare.hpp"
#include <optional>
#include <unordered_map>
#include <vector>

namespace h3diff::goldens {

// Results by place in the graph.
class ResultMap {
public:
  ResultMap(const probes::Graph&, const std::vector<ProbeResult>&);
  const ProbeResult* at(const Place&) const;            // nullptr if there is none
  std::optional<Place> place(const ProbeResult&) const; // nullopt: the graph does not know the probe
  Lineage inputs(const ProbeResult&) const;             // nearest inputs that were judged inside or outside
  const probes::Graph& graph() const { return graph_; }

private:
  const probes::Graph& graph_;
  const std::vector<ProbeResult>& results_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
};

struct Localisation {
  std::optional<std::size_t> first_difference, first_divergence; // indices into the results
  std::vector<std::size_t> culprits;
};

// Sets `spoiled` in the results, which are in execution order.
Localisation localise(std::vector<ProbeResult>&, const probes::Graph&);

// The parts of the record around the first divergence, tensors and command aside.
FirstDivergence explain(const std::vector<ProbeResult>&, std::size_t first, const probes::Graph&);

// Culprits that what they feed does not show: "an error that heals" usually is a misaligned probe.
std::vector<std::string> healing(const std::vector<ProbeResult>&, const std::vector<std::size_t>& culprits,
                                 const probes::Graph&);

} // namespace h3diff::goldens
