// The state of a run between evaluations: latents on the device, and the forward's arguments made of them.
#pragma once
#include "model.hpp"
#include "problem.hpp"

namespace h3diff::harness {

class Sampler {
public:
  // Inputs keep the dtype that their file had.
  Sampler(const cases::Inputs&, at::Device);
  ForwardInput arguments(const StepPlan&) const;
  // Steps the generated rows; conditioning rows stay. Shows latent.video and latent.audio to `sink` (may be null).
  void advance(const Prediction&, const StepPlan&, Dispatcher&, ProbeSink* sink);

private:
  at::Device device_;
  at::Tensor video_, audio_, text_; // [1, rows, width]
  at::Tensor token_tags_, position_ids_;
  ops::PackIndices indices_;
  std::int64_t cond_video_rows_, cond_audio_rows_;
};

} // namespace h3diff::harness
