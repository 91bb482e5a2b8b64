// The H3 forward. Formulas: docs/probes.md; numerics: the dispatcher's implementations.
#pragma once
#include "dispatcher.hpp"
#include "probe_sink.hpp"
#include "weights.hpp"

namespace h3diff::harness {

// The arguments of one evaluation, on the model's device.
struct ForwardInput {
  at::Tensor video, audio, text; // [1, rows, width]
  at::Tensor timestep;           // [timesteps], float32
  at::Tensor timestep_indices;   // [rows], int64
  at::Tensor token_tags;         // [rows], int64
  at::Tensor position_ids;       // [rows, 3], float32
  ops::PackIndices indices;
};

struct Prediction {
  at::Tensor video, audio; // [1, rows, width]: velocities that point to the data, in the heads' dtype
};

class Model {
public:
  Model(probes::ModelShape shape, Weights weights) : shape_(shape), weights_(std::move(weights)) {}
  // `sink` may be null; the outputs do not depend on it.
  Prediction forward(const ForwardInput&, Dispatcher&, ProbeSink* sink) const;

private:
  probes::ModelShape shape_;
  Weights weights_;
};

} // namespace h3diff::harness
