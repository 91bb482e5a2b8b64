// Brings two dumps side by side: by step, probe and segment, in execution order, under canonical names.
#pragma once
#include "h3diff/probes/dump.hpp"
#include "h3diff/probes/graph.hpp"
#include <string>
#include <vector>

namespace h3diff::goldens {

struct SegmentPair {
  probes::Segment segment = probes::Segment::all;
  const probes::IndexRow* reference = nullptr; // nullptr: that dump has no such row
  const probes::IndexRow* candidate = nullptr;
};

struct ProbePair {
  std::int32_t step = 0;
  std::string probe;                       // canonical where a table knows the name
  const probes::ProbeInfo* info = nullptr; // nullptr: not a probe of the graph
  std::vector<SegmentPair> segments;       // in the order of probes::Segment
  std::string unobserved;                  // why the candidate cannot see this probe, if it says so
  bool declared_unobserved = false;
  std::string reordered_before; // the input that the candidate computed after this probe
};

struct Alignment {
  std::vector<ProbePair> pairs; // execution order: step, then the graph's order
  std::vector<std::string> notes;
};

// The rows are the readers'; keep both alive.
Alignment align(const probes::DumpReader& reference, const probes::DumpReader& candidate, const probes::Graph&);

// Our name for `name`; `pipeline` tells which alias table to ask first. Unknown names come back unchanged.
std::string canonical_name(const probes::Graph&, const std::string& name, const std::string& pipeline);

} // namespace h3diff::goldens
