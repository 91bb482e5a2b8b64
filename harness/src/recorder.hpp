// What happens to a probe's value once it is a plain view in host memory: it is split by segment, measured in one
// pass, and handed to the dump writer, under the capture specification and its byte budget. Knows nothing of torch.
#pragma once
#include "h3diff/probes/capture.hpp"
#include "h3diff/probes/dump.hpp"
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace h3diff::harness {

class Recorder {
public:
  struct Options {
    std::string path;
    bool overwrite = false;
    probes::CaptureSpec capture;
    int threads = 1;
    int steps = 1; // evaluations planned
  };
  // usage error: PATH exists, or the capture names a probe that is not there.
  static Result<Recorder> create(const Options&, const probes::ModelShape&, const probes::RunFacts&);

  // What the row spaces of the coming probes are made of. Before the first step, weights only.
  void begin_step(int step, const probes::SequenceLayout&, std::vector<float> timesteps);
  // True if the capture keeps anything of this probe.
  bool wants(const std::string& probe) const;
  // `stored`: dtype in which the run held the value. `reference`, of the same shape: the cosine with it is recorded.
  Result<void> record(const std::string& probe, const probes::TensorView& value, probes::DType stored,
                      const probes::TensorView* reference = nullptr);
  Result<void> end_weights();
  Result<void> end_step(const probes::StepRow&);
  Result<void> finish(std::span<const probes::DispatchRow>);

  std::int64_t rows() const { return rows_; }
  std::int64_t over_budget() const { return over_budget_; }
  const std::string& partial_path() const { return writer_->partial_path(); }

private:
  Recorder(const Options& options, const probes::ModelShape& shape, probes::DumpWriter writer);
  const probes::SegmentTable& segments(const probes::ProbeInfo&, std::int64_t rows);
  probes::Level within_budget(probes::Level wanted, std::int64_t rows, std::int64_t row_bytes);

  Options options_;
  std::unique_ptr<probes::Graph> graph_;
  std::optional<probes::DumpWriter> writer_;
  int step_ = -1;
  probes::SequenceLayout layout_;
  std::vector<float> timesteps_;
  std::map<probes::RowSpace, probes::SegmentTable> tables_; // of this step
  std::int64_t rows_ = 0, over_budget_ = 0, bytes_ = 0;
};

} // namespace h3diff::harness
