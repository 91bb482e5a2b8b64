#include "sampler.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <algorithm>

namespace h3diff::harness {
namespace {

// A host tensor with a copy of `values`; in memory of its own, aligned as torch aligns.
template <class T> at::Tensor tensor_of(const std::vector<T>& values, at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor tensor = at::empty(sizes, type);
  TORCH_INTERNAL_ASSERT(tensor.numel() == static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), tensor.data_ptr<T>());
  return tensor;
}

at::Tensor rows_of(const std::vector<float>& values, std::int64_t rows, std::int64_t width, probes::DType dtype) {
  return tensor_of(values, {1, rows, width}, at::kFloat).to(scalar_type(dtype));
}

at::Tensor indices_of(const std::vector<std::int64_t>& values) {
  return tensor_of(values, {static_cast<std::int64_t>(values.size())}, at::kLong);
}

} // namespace

Sampler::Sampler(const cases::Inputs& inputs, at::Device device)
    : device_(device), cond_video_rows_(inputs.sequence.layout.cond_video_rows),
      cond_audio_rows_(inputs.sequence.layout.cond_audio_rows) {
  const probes::SequenceLayout& layout = inputs.sequence.layout;
  video_ = rows_of(inputs.video, inputs.video_rows, inputs.video_width, inputs.video_dtype).to(device);
  audio_ = rows_of(inputs.audio, inputs.audio_rows, inputs.audio_width, inputs.audio_dtype).to(device);
  text_ = rows_of(inputs.text, inputs.text_rows, inputs.text_width, inputs.text_dtype).to(device);
  token_tags_ = tensor_of(layout.token_tags, {layout.rows}, at::kInt).to(at::kLong).to(device);
  position_ids_ = tensor_of(inputs.sequence.position_ids, {layout.rows, 3}, at::kDouble).to(at::kFloat).to(device);
  indices_ = {indices_of(layout.text_indices).to(device), indices_of(layout.video_indices).to(device),
              indices_of(layout.audio_indices).to(device)};
}

ForwardInput Sampler::arguments(const StepPlan& step) const {
  ForwardInput input;
  input.video = video_;
  input.audio = audio_;
  input.text = text_;
  input.timestep =
      tensor_of(step.rows.timesteps, {static_cast<std::int64_t>(step.rows.timesteps.size())}, at::kFloat).to(device_);
  input.timestep_indices = indices_of(step.rows.indices).to(device_);
  input.token_tags = token_tags_;
  input.position_ids = position_ids_;
  input.indices = indices_;
  return input;
}

void Sampler::advance(const Prediction& prediction, const StepPlan& step, Dispatcher& ops, ProbeSink* sink) {
  const auto stepped = [&](const at::Tensor& latents, const at::Tensor& velocity, std::int64_t conditioning, float t,
                           float sigma, float sigma_next) {
    const std::int64_t generated = latents.size(1) - conditioning;
    if (generated == 0 || !(sigma > 0.0f)) // from sigma 0 there is no step
      return latents;
    const at::Tensor next = ops.euler(velocity[0].narrow(0, conditioning, generated),
                                      latents[0].narrow(0, conditioning, generated), t, sigma, sigma_next);
    return at::cat({latents[0].narrow(0, 0, conditioning), next}).unsqueeze(0);
  };
  video_ = stepped(video_, prediction.video, cond_video_rows_, step.t_video, step.sigma_video, step.sigma_video_next);
  audio_ = stepped(audio_, prediction.audio, cond_audio_rows_, step.t_audio, step.sigma_audio, step.sigma_audio_next);
  if (sink != nullptr) {
    sink->probe("latent.video", video_);
    sink->probe("latent.audio", audio_);
  }
}

} // namespace h3diff::harness
