#include "h3diff/cases/import.hpp"
#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/schedule.hpp"
#include "h3diff/probes/capture.hpp"
#include "import_map.hpp"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>

namespace h3diff::cases {

using probes::DType;
using probes::printable;

namespace {

// Values and where they came from, in canonical form.
struct Canonical {
  ImportTensor tensor;
  DType stored = DType::float32;
  std::int64_t rows = 0, cols = 0;
  probes::TensorView view() const {
    return probes::TensorView::contiguous(tensor.bytes.data(), tensor.dtype, rows, cols);
  }
};

class Import {
public:
  Import(const ImportOptions& options, const Bundle& bundle, const ImportSource& source, const ImportMap& map,
         const probes::CaptureSpec& capture)
      : options_(options), bundle_(bundle), source_(source), map_(map), capture_(capture),
        graph_(bundle.checkpoint.shape()) {}

  Result<ImportSummary> operator()() {
    if (auto known = capture_.check(graph_); !known)
      return known.error();
    auto assigned = assign(map_, source_, graph_);
    if (!assigned)
      return assigned.error();
    if (assigned->list.empty())
      return bad_input(fmt::format("{}: none of its {} tensors is mapped to a probe; the first is {}", source_.path,
                                   source_.tensors.size(), printable(source_.tensors.front().name)));
    summary_.not_imported = std::move(assigned->not_imported);
    std::map<int, std::vector<Assignment>> steps;
    for (Assignment& assignment : assigned->list)
      steps[assignment.step].push_back(std::move(assignment));
    for (const probes::StepRow& row : source_.sigmas)
      if (!steps.contains(row.step))
        return bad_input(fmt::format("{}/dump.json: sigmas has step {}, of which the folder holds no tensor",
                                     source_.path, row.step));
    total_ = static_cast<std::int64_t>(assigned->list.size());
    for (const auto& [step, unused] : steps)
      steps_planned_ = std::max(steps_planned_, step + 1);

    auto writer = probes::DumpWriter::create({options_.output, options_.overwrite}, facts());
    if (!writer)
      return writer.error();
    const std::string partial = writer->partial_path();
    auto written = write_steps(*writer, steps);
    if (!written) {
      { const probes::DumpWriter closed = *std::move(writer); }
      std::error_code ignored;
      std::filesystem::remove(partial, ignored);
      return written.error();
    }
    if (lossy_ > 0)
      summary_.notes.push_back(fmt::format("{} values that the compute dtype has not; kept in the dtype of the file",
                                           lossy_ == 1 ? "1 segment holds" : fmt::format("{} segments hold", lossy_)));
    return std::move(summary_);
  }

private:
  const ImportOptions& options_;
  const Bundle& bundle_;
  const ImportSource& source_;
  const ImportMap& map_;
  const probes::CaptureSpec& capture_;
  probes::Graph graph_;
  ImportSummary summary_;
  std::vector<float> timesteps_; // of the step at hand
  std::int64_t total_ = 0, done_ = 0, bytes_ = 0, over_budget_ = 0, lossy_ = 0;
  int steps_planned_ = 1;

  const probes::SequenceLayout& layout() const { return bundle_.inputs.sequence.layout; }

  probes::RunFacts facts() const {
    probes::RunFacts facts = probes::shape_facts(graph_.shape());
    facts["producer"] = options_.producer;
    facts["pipeline"] = std::string("import");
    for (const auto& [name, fact] : source_.facts)
      facts[name] = fact;
    facts["bundle"] = bundle_.name;
    facts["case_digest"] = bundle_.case_digest;
    facts["checkpoint_digest"] = bundle_.checkpoint.digest();
    if (bundle_.has_case) {
      facts["case"] = bundle_.case_name;
      facts["seed"] = static_cast<std::int64_t>(bundle_.seed);
    }
    facts["capture"] = capture_.text;
    facts["steps_planned"] = std::int64_t{steps_planned_};
    if (const auto dtype = default_dtype())
      facts["compute_dtype"] = std::string(probes::name(*dtype));
    return facts;
  }

  std::optional<DType> default_dtype() const {
    return source_.compute_dtype ? source_.compute_dtype : map_.compute_dtype;
  }

  // Nearest statement first: the tensor's, the entry's, the map's for the probe, the run's. The run's says nothing
  // about arguments, which stand in the dump as the caller gave them.
  std::optional<DType> compute_dtype(const Assignment& assignment) const {
    if (assignment.parts.front()->compute_dtype)
      return assignment.parts.front()->compute_dtype;
    if (assignment.entry && assignment.entry->compute_dtype)
      return assignment.entry->compute_dtype;
    std::optional<DType> found = assignment.probe.starts_with("input.") ? std::nullopt : default_dtype();
    for (const auto& [glob, dtype] : map_.compute_dtypes)
      if (probes::glob_match(glob, assignment.probe))
        found = dtype;
    return found;
  }

  // The sigmas that the producer states, else the bundle's schedule of as many steps as the case has.
  probes::StepRow step_row(int step) const {
    for (const probes::StepRow& row : source_.sigmas)
      if (row.step == step)
        return row;
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    probes::StepRow row{step, unknown, unknown, unknown, unknown};
    if (!bundle_.has_case)
      return row;
    const int steps = std::max(bundle_.steps, steps_planned_);
    const Schedule video = make_schedule(steps, static_cast<double>(bundle_.shift_video));
    const Schedule audio = make_schedule(steps, static_cast<double>(bundle_.shift_audio));
    const auto at = static_cast<std::size_t>(step);
    if (at + 1 < video.sigmas.size() && at + 1 < audio.sigmas.size())
      row = {step, video.sigmas[at], audio.sigmas[at], video.sigmas[at + 1], audio.sigmas[at + 1]};
    return row;
  }

  // As the model got them: the imported argument, else the bundle's for step 0, else from the sigmas.
  Result<void> find_timesteps(int step, const std::vector<Assignment>& assignments) {
    timesteps_ = bundle_.inputs.timesteps.timesteps;
    for (const Assignment& assignment : assignments)
      if (assignment.probe == "input.timestep") {
        auto value = transformed(assignment, -1, 1);
        if (!value)
          return value.error();
        timesteps_.clear();
        for (std::int64_t i = 0, n = value->elements(); i < n; ++i)
          timesteps_.push_back(static_cast<float>(probes::to_double(
              value->dtype, value->bytes.data() + static_cast<std::size_t>(i) * probes::item_size(value->dtype))));
        return {};
      }
    const probes::StepRow row = step_row(step);
    if (step > 0 && !std::isnan(row.sigma_video) && !std::isnan(row.sigma_audio))
      timesteps_ = row_timesteps(layout(), 1.0f - static_cast<float>(row.sigma_video),
                                 1.0f - static_cast<float>(row.sigma_audio))
                       .timesteps;
    return {};
  }

  Error wrong(const Assignment& assignment, const std::string& fact) const {
    const std::string place = !assignment.layer ? assignment.parts.front()->file
                              : assignment.entry
                                  ? fmt::format("{}: {}", assignment.layer->source, assignment.entry->where)
                                  : assignment.layer->source;
    return bad_input(fmt::format("{}: {} of step {}, for {}: {}", place, printable(assignment.parts.front()->name),
                                 assignment.parts.front()->step, assignment.probe, fact));
  }

  Result<ImportTensor> transformed(const Assignment& assignment, std::int64_t rows, std::int64_t cols) const {
    std::vector<ImportTensor> parts;
    for (const SourceTensor* part : assignment.parts) {
      parts.push_back(ImportSource::load(*part));
      if (assignment.layer && assignment.layer->reverse_dims)
        std::reverse(parts.back().shape.begin(), parts.back().shape.end()); // another reading of the same bytes
    }
    const TransformContext context{graph_.shape(), rows, cols, layout(), [&](const std::string& name) {
                                     return source_.find(assignment.parts.front()->step, name);
                                   }};
    if (assignment.entry)
      for (const Transform& transform : assignment.entry->transforms)
        if (const auto flaw = transform.apply(parts, context))
          return wrong(assignment, fmt::format("{}: {}", transform.op, *flaw));
    return std::move(parts.front());
  }

  Result<Canonical> canonical(const Assignment& assignment, std::int64_t rows, std::int64_t cols) const {
    auto tensor = transformed(assignment, rows, cols);
    if (!tensor)
      return tensor.error();
    // Leading axes are rows, the others columns; heads are flattened into columns.
    std::int64_t leading = 1;
    bool fits = leading == rows;
    for (const std::int64_t size : tensor->shape)
      fits |= (leading *= size) == rows;
    if (!fits || tensor->elements() != rows * cols)
      return wrong(assignment,
                   fmt::format("shape {} is not the probe's [{},{}]", shape_text(tensor->shape), rows, cols));
    Canonical out{*std::move(tensor), assignment.parts.front()->tensor.dtype, rows, cols};
    const bool index = assignment.probe == "input.timestep_indices" || assignment.probe == "input.token_tags";
    if (index && out.tensor.dtype != DType::int32) {
      const std::vector<probes::RowRange> all{{0, rows}};
      if (!probes::narrowing_is_lossless(out.view(), all, DType::int32))
        return wrong(assignment, "holds values that are no int32");
      (void)cast(out.tensor, DType::int32);
    }
    if (assignment.probe == "input.position_ids")
      (void)cast(out.tensor, DType::float32);
    return out;
  }

  std::int64_t rows_of(const probes::ProbeInfo& info) const {
    const auto timesteps = static_cast<std::int64_t>(timesteps_.size());
    switch (info.space) {
    case probes::RowSpace::packed: return layout().rows;
    case probes::RowSpace::text: return static_cast<std::int64_t>(layout().text_indices.size());
    case probes::RowSpace::video: return static_cast<std::int64_t>(layout().video_indices.size());
    case probes::RowSpace::audio: return static_cast<std::int64_t>(layout().audio_indices.size());
    case probes::RowSpace::modulation: return 3 * timesteps;
    case probes::RowSpace::timesteps: return timesteps;
    case probes::RowSpace::other: break;
    }
    return info.rows;
  }

  Result<probes::SegmentTable> segments(const Assignment& assignment, const probes::ProbeInfo& info) const {
    probes::SegmentTable table = probes::segment_table(layout(), info.space, timesteps_, info.rows);
    if (!assignment.segment)
      return table;
    for (probes::SegmentRows& segment : table)
      if (segment.segment == *assignment.segment) {
        segment.ranges = {{0, segment.rows}}; // the tensor holds these rows alone
        return probes::SegmentTable{segment};
      }
    return wrong(assignment, fmt::format("this bundle's probe has no segment {}", probes::name(*assignment.segment)));
  }

  probes::Level within_budget(probes::Level wanted, std::int64_t rows, std::int64_t row_bytes) {
    if (wanted != probes::Level::rows && wanted != probes::Level::full)
      return wanted;
    const std::int64_t kept = wanted == probes::Level::full ? rows : std::min(rows, capture_.sample_rows);
    if (row_bytes > 0 && kept > (capture_.budget_bytes - bytes_) / row_bytes) {
      ++over_budget_;
      return probes::Level::stats;
    }
    bytes_ += kept * row_bytes;
    return wanted;
  }

  Result<void> write_steps(probes::DumpWriter& writer, std::map<int, std::vector<Assignment>>& steps) {
    for (auto& [step, assignments] : steps) {
      if (!source_.ordered || step < 0)
        std::stable_sort(assignments.begin(), assignments.end(), [&](const Assignment& a, const Assignment& b) {
          const int x = graph_.position(a.probe), y = graph_.position(b.probe);
          return x != y ? x < y : a.segment < b.segment;
        });
      if (auto found = find_timesteps(step, assignments); !found)
        return found;
      for (const Assignment& assignment : assignments) {
        if (auto written = write_probe(writer, assignment, assignments); !written)
          return written;
        if (options_.progress)
          options_.progress(++done_, total_);
      }
      if (auto ended = writer.end_step(step < 0 ? probes::StepRow{-1} : step_row(step)); !ended)
        return ended;
      if (step >= 0)
        summary_.steps.push_back(step);
    }
    writer.set_fact("tensors_over_budget", over_budget_);
    return writer.finish(source_.dispatch, source_.unobserved);
  }

  // The model's input of a prediction, for its cosine; nothing where the source does not hold it.
  std::optional<Canonical> reference(const Assignment& prediction, const std::vector<Assignment>& assignments,
                                     std::int64_t rows, std::int64_t cols) const {
    const std::string input = prediction.probe == "pred.video"   ? "input.video"
                              : prediction.probe == "pred.audio" ? "input.audio"
                                                                 : "";
    for (const Assignment& other : assignments)
      if (other.probe == input && other.segment == prediction.segment)
        if (auto value = canonical(other, rows, cols))
          return *std::move(value);
    return std::nullopt;
  }

  Result<void> write_probe(probes::DumpWriter& writer, const Assignment& assignment,
                           const std::vector<Assignment>& assignments) {
    const probes::ProbeInfo& info = *graph_.find(assignment.probe);
    const probes::Level wanted = capture_.level(assignment.probe);
    if (wanted == probes::Level::off)
      return {};
    auto table = segments(assignment, info);
    if (!table)
      return table.error();
    const std::int64_t rows = assignment.segment ? table->front().rows : rows_of(info);
    auto value = canonical(assignment, rows, info.cols);
    if (!value)
      return value.error();
    const auto input = reference(assignment, assignments, rows, info.cols);

    // A value that was computed in bfloat16 is judged as bfloat16, however wide the file holds it.
    const auto computed = compute_dtype(assignment);
    const bool narrows = computed && probes::is_floating(value->tensor.dtype) &&
                         probes::item_size(*computed) < probes::item_size(value->tensor.dtype);
    std::optional<Canonical> narrow;
    ++summary_.probes;
    for (const probes::SegmentRows& segment : *table) {
      bool use_narrow = false;
      if (narrows) {
        use_narrow = probes::narrowing_is_lossless(value->view(), segment.ranges, *computed);
        lossy_ += use_narrow ? 0 : 1;
        if (use_narrow && !narrow) {
          narrow = *value;
          (void)cast(narrow->tensor, *computed);
        }
      }
      const Canonical& held = use_narrow ? *narrow : *value;
      if (auto written = write_segment(writer, assignment, info, segment, held, wanted, input); !written)
        return written;
    }
    return {};
  }

  Result<void> write_segment(probes::DumpWriter& writer, const Assignment& assignment, const probes::ProbeInfo& info,
                             const probes::SegmentRows& segment, const Canonical& held, probes::Level wanted,
                             const std::optional<Canonical>& input) {
    const probes::TensorView view = held.view();
    probes::MeasureOptions measure;
    measure.statistics = wanted != probes::Level::digest;
    measure.sketch_k = measure.statistics ? capture_.sketch(assignment.step, steps_planned_) : 0;
    measure.columns = measure.statistics && info.per_column;
    measure.threads = options_.threads;
    const probes::Measurement measured = probes::measure(view, segment.ranges, measure);
    probes::IndexRow row;
    row.step = assignment.step;
    row.probe = assignment.probe;
    row.segment = segment.segment;
    row.dtype = held.tensor.dtype;
    row.stored_dtype = held.stored;
    row.rows = measured.rows;
    row.cols = measured.cols;
    row.digest = measured.digest;
    if (measure.statistics)
      row.statistics = measured.statistics;
    row.sketch_k = measure.sketch_k;
    if (input && measure.statistics)
      row.cosine = probes::cosine(view, input->view(), segment.ranges);
    const probes::Level level = within_budget(
        wanted, measured.rows, measured.cols * static_cast<std::int64_t>(probes::item_size(held.tensor.dtype)));
    row.level = level;
    writer.add(std::move(row), measured.sketch);
    ++summary_.rows;
    if (measure.columns)
      writer.add_columns(assignment.probe, measured.columns);
    if (level != probes::Level::rows && level != probes::Level::full)
      return {};
    return writer.add_tensor(assignment.step, assignment.probe, segment.segment, view, segment.ranges,
                             level == probes::Level::rows ? capture_.sample_rows : 0);
  }
};

} // namespace

Result<ImportSummary> import_tensors(const ImportOptions& options) {
  auto map = load_map(options.map);
  if (!map)
    return map.error();
  auto capture = probes::CaptureSpec::parse(options.capture);
  if (!capture)
    return capture.error();
  auto source = open_import_source(options.source);
  if (!source)
    return source.error();
  auto bundle = open_bundle(options.bundle, options.checkpoint);
  if (!bundle)
    return bundle.error();
  return Import(options, *bundle, *source, *map, *capture)();
}

} // namespace h3diff::cases
