// The probe sink of a run: brings each tensor into canonical form on the host and hands it to the recorder.
#pragma once
#include "probe_sink.hpp"
#include "recorder.hpp"
#include <functional>

namespace h3diff::harness {

class Observer final : public ProbeSink {
public:
  using Progress = std::function<void(const std::string& probe)>;
  // Borrows the recorder. `progress` may be empty.
  Observer(Recorder& recorder, Progress progress) : recorder_(recorder), progress_(std::move(progress)) {}

  void probe(const std::string& name, const at::Tensor& value, Halves halves) override;
  // The first failure of a probe since the last call; later probes were not recorded.
  Result<void> outcome();

private:
  Recorder& recorder_;
  Progress progress_;
  at::Tensor input_video_, input_audio_; // of this step, for the predictions' cosine
  std::optional<Error> failure_;
};

} // namespace h3diff::harness
