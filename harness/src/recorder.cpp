#include "recorder.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace h3diff::harness {

using probes::Level;

Recorder::Recorder(const Options& options, const probes::ModelShape& shape, probes::DumpWriter writer)
    : options_(options), graph_(std::make_unique<probes::Graph>(shape)), writer_(std::move(writer)) {}

Result<Recorder> Recorder::create(const Options& options, const probes::ModelShape& shape,
                                  const probes::RunFacts& facts) {
  if (Result<void> known = options.capture.check(probes::Graph(shape)); !known)
    return known.error();
  auto writer = probes::DumpWriter::create({options.path, options.overwrite}, facts);
  if (!writer)
    return writer.error();
  return Recorder(options, shape, *std::move(writer));
}

void Recorder::begin_step(int step, const probes::SequenceLayout& layout, std::vector<float> timesteps) {
  step_ = step;
  layout_ = layout;
  timesteps_ = std::move(timesteps);
  tables_.clear();
}

bool Recorder::wants(const std::string& probe) const { return options_.capture.level(probe) != Level::off; }

const probes::SegmentTable& Recorder::segments(const probes::ProbeInfo& info, std::int64_t rows) {
  if (info.space == probes::RowSpace::other) {
    probes::SegmentTable& table = tables_[info.space];
    table = probes::segment_table(layout_, info.space, timesteps_, rows);
    return table;
  }
  const auto [found, inserted] = tables_.try_emplace(info.space);
  if (inserted)
    found->second = probes::segment_table(layout_, info.space, timesteps_);
  return found->second;
}

Level Recorder::within_budget(Level wanted, std::int64_t rows, std::int64_t row_bytes) {
  if (wanted != Level::rows && wanted != Level::full)
    return wanted;
  const std::int64_t kept = wanted == Level::full ? rows : std::min(rows, options_.capture.sample_rows);
  if (row_bytes > 0 && kept > (options_.capture.budget_bytes - bytes_) / row_bytes) {
    ++over_budget_;
    return Level::stats;
  }
  bytes_ += kept * row_bytes;
  return wanted;
}

Result<void> Recorder::record(const std::string& probe, const probes::TensorView& value, probes::DType stored,
                              const probes::TensorView* reference) {
  const probes::ProbeInfo* info = graph_->find(probe);
  if (info == nullptr)
    return Error{ExitCode::internal, fmt::format("the forward shows a probe that the graph lacks: {}", probe)};
  const Level wanted = options_.capture.level(probe);
  if (wanted == Level::off)
    return {};
  probes::MeasureOptions measure;
  measure.statistics = wanted != Level::digest;
  measure.sketch_k = measure.statistics ? options_.capture.sketch(step_, options_.steps) : 0;
  measure.columns = measure.statistics && info->per_column;
  measure.threads = options_.threads;
  for (const probes::SegmentRows& segment : segments(*info, value.rows())) {
    for (const probes::RowRange& range : segment.ranges)
      if (range.end > value.rows())
        return Error{ExitCode::internal, fmt::format("{} has {} rows, fewer than its segments", probe, value.rows())};
    const probes::Measurement measured = probes::measure(value, segment.ranges, measure);
    probes::IndexRow row;
    row.step = step_;
    row.probe = probe;
    row.segment = segment.segment;
    row.dtype = value.dtype;
    row.stored_dtype = stored;
    row.rows = measured.rows;
    row.cols = measured.cols;
    row.digest = measured.digest;
    if (measure.statistics)
      row.statistics = measured.statistics;
    row.sketch_k = measure.sketch_k;
    if (reference != nullptr && measure.statistics)
      row.cosine = probes::cosine(value, *reference, segment.ranges);
    row.level =
        within_budget(wanted, measured.rows, measured.cols * static_cast<std::int64_t>(probes::item_size(value.dtype)));
    const Level level = row.level;
    writer_->add(std::move(row), measured.sketch);
    ++rows_;
    if (measure.columns)
      writer_->add_columns(probe, measured.columns);
    if (level == Level::rows || level == Level::full) {
      const std::int64_t sample = level == Level::rows ? options_.capture.sample_rows : 0;
      if (auto written = writer_->add_tensor(step_, probe, segment.segment, value, segment.ranges, sample); !written)
        return written.error();
    }
  }
  return {};
}

Result<void> Recorder::end_weights() { return writer_->end_step({-1}); }

Result<void> Recorder::end_step(const probes::StepRow& row) { return writer_->end_step(row); }

Result<void> Recorder::finish(std::span<const probes::DispatchRow> dispatch) {
  writer_->set_fact("tensors_over_budget", over_budget_);
  return writer_->finish(dispatch);
}

} // namespace h3diff::harness
