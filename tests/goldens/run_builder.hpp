// Makes dumps of plausible runs without a model: every probe of the graph gets numbers of its own, the same in every
// run of one seed; faults are edits to them.
#pragma once
#include "h3diff/probes/dump.hpp"
#include "h3diff/probes/graph.hpp"
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace h3diff::testing {

using probes::DType;
using probes::Level;
using probes::Segment;

struct Values {
  std::int64_t rows = 0, cols = 0;
  std::vector<float> data;      // rows * cols
  DType dtype = DType::float32; // what it is rounded to and stored as
  bool omit = false;            // the producer has no such row

  float& at(std::int64_t row, std::int64_t col) { return data[static_cast<std::size_t>(row * cols + col)]; }
  void resize_columns(std::int64_t columns, float fill);
};

using Where = std::tuple<std::int32_t, std::string, Segment>; // step, probe, segment

probes::ModelShape tiny_shape(bool curve = false);

struct SampleRun {
  probes::ModelShape shape = tiny_shape();
  int steps = 2;
  std::uint64_t seed = 7;
  DType compute = DType::float32;
  bool finish = true;
  int complete_steps = -1; // of `steps`; -1: all
  probes::RunFacts facts;  // beside those of the shape; an empty string takes a fact away
  std::function<void(const Where&, Values&)> edit = [](const Where&, Values&) {};
  std::function<Level(const std::string& probe)> level = [](const std::string&) { return Level::stats; };
  std::function<std::string(const std::string& probe)> rename = [](const std::string& probe) { return probe; };
  std::vector<std::pair<std::string, std::string>> swap_order; // probes that trade places in a step
  std::vector<probes::DispatchRow> dispatch = {{"linear", "aten", "aten", 100, 0},
                                               {"attention", "sdpa_math", "sdpa_math", 8, 0}};
  std::vector<probes::Unobserved> unobserved;
  int sketch_k = 256;
  double shift = 12;

  std::string write(const std::string& name) const; // the path, under the test's own folder
};

// Everything that reads (directly or not) what this place holds, itself included.
std::set<Where> downstream(const SampleRun&, const Where&);

// Adds a relative error to each of the places: value * (1 + amount * noise).
std::function<void(const Where&, Values&)> perturb(std::set<Where> places, float amount);

std::string temporary(const std::string& name); // a path that does not exist yet

} // namespace h3diff::testing
