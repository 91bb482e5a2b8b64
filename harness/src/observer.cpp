#include "observer.hpp"

namespace h3diff::harness {
namespace {

// Index tensors are int32 and positions float32 in canonical form; everything else is as the forward holds it.
at::Tensor canonical(const std::string& name, const at::Tensor& value) {
  if (name == "input.timestep_indices" || name == "input.token_tags")
    return value.to(at::kInt);
  if (name == "input.position_ids")
    return value.to(at::kFloat);
  return value;
}

// Rows of a token tensor are its batch and row dimensions, of a table its first; a 1-D weight is one row.
int row_dims(const std::string& name, const at::Tensor& value) {
  if (value.dim() >= 3)
    return 2;
  return value.dim() == 1 && name.starts_with("weights.") ? 0 : 1;
}

} // namespace

void Observer::probe(const std::string& name, const at::Tensor& value, Halves halves) {
  if (progress_)
    progress_(name);
  if (name == "input.video")
    input_video_ = value;
  else if (name == "input.audio")
    input_audio_ = value;
  if (failure_ || !recorder_.wants(name))
    return;
  const at::Tensor host = canonical(name, value).cpu();
  const auto stored = probe_dtype(value.scalar_type());
  const int rows = row_dims(name, host);
  const probes::TensorView view = view_of(host, rows, halves);
  Result<void> recorded;
  if (name == "pred.video" || name == "pred.audio") {
    const at::Tensor input = (name == "pred.video" ? input_video_ : input_audio_).cpu();
    const probes::TensorView reference = view_of(input, rows);
    recorded = recorder_.record(name, view, *stored, &reference);
  } else {
    recorded = recorder_.record(name, view, *stored);
  }
  if (!recorded)
    failure_ = recorded.error();
}

Result<void> Observer::outcome() {
  if (!failure_)
    return {};
  Error error = *std::move(failure_);
  failure_.reset();
  return error;
}

} // namespace h3diff::harness
