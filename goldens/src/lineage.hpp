// Walks the op graph backwards, segment by segment, past probes that nobody observed.
#pragma once
#include "h3diff/probes/graph.hpp"
#include <compare>
#include <cstdint>
#include <functional>
#include <vector>

namespace h3diff::goldens {

struct Place {
  std::int32_t step = 0;
  int probe = 0; // position in the graph
  probes::Segment segment = probes::Segment::all;
  auto operator<=>(const Place&) const = default;
};

struct Lineage {
  std::vector<Place> observed; // the nearest observed inputs, ascending
  std::vector<int> unobserved; // activations passed on the way, ascending
  std::vector<int> unobserved_weights;
};

// `observed` says whether a place may stand for an input.
Lineage lineage(const probes::Graph&, const Place& of, const std::function<bool(const Place&)>& observed);

} // namespace h3diff::goldens
