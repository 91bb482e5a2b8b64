#include "case_json.hpp"
#include "checkpoint_config.hpp"
#include "file.hpp"
#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/philox.hpp"
#include "h3diff/cases/schedule.hpp"
#include "input_tensors.hpp"
#include "layout_table.hpp"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>

namespace h3diff::cases {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t part_elements = std::int64_t{1} << 20; // what is in memory at a time

// One tensor of the checkpoint's files and where its values come from.
struct Output {
  FileTensor file;
  SyntheticWeight source;   // internal, without padding
  std::int64_t columns = 0; // of the file's tensor; more than the source's where padded
};

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape)
    count *= size;
  return count;
}

std::int64_t bytes_of(const Output& output) {
  return elements(output.file.shape) * static_cast<std::int64_t>(probes::item_size(output.source.dtype));
}

std::vector<Output> outputs_of(const CaseSpec& source, const CaseSpec& stored, Layout layout) {
  std::vector<Output> out;
  const std::vector<SyntheticWeight> sources = weight_list(source);
  const std::vector<LayoutWeight> weights = layout_weights(stored.shape, layout);
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (const FileTensor& part : weights[i].parts)
      out.push_back({part, sources[i], part.shape.size() > 1 ? part.shape[1] : 1});
  // Wide elements first, as the format's own writer has it, so that every tensor is aligned.
  std::stable_sort(out.begin(), out.end(), [](const Output& a, const Output& b) {
    return probes::item_size(a.source.dtype) > probes::item_size(b.source.dtype);
  });
  return out;
}

Result<void> write_rows(SafetensorsWriter& writer, const CaseSpec& spec, const Output& output, const RowRun& run) {
  const std::int64_t columns = output.source.shape.size() > 1 ? output.source.shape[1] : 1;
  const std::size_t item = probes::item_size(output.source.dtype);
  std::int64_t begin = run.internal_row * columns;
  const std::int64_t end = begin + run.rows * columns;
  std::vector<std::byte> part(static_cast<std::size_t>(std::min(part_elements, end - begin)) * item);
  while (begin < end) {
    const std::int64_t count = std::min(part_elements, end - begin);
    fill_weight(spec, output.source, begin, begin + count, part.data());
    if (auto written = writer.write(std::span(part).first(static_cast<std::size_t>(count) * item)); !written)
      return written;
    begin += count;
  }
  return {};
}

// Curve AdaLN weights are float32; their own columns keep the values that they have without padding.
Result<void> write_padded(SafetensorsWriter& writer, const CaseSpec& spec, const ExportOptions& options,
                          const Output& output) {
  const std::int64_t own = output.source.shape[1], added = output.columns - own;
  const bool table = output.source.name == "adaln_t_table";
  const TensorStream stream(spec.seed, output.source.name + ".pad");
  // A table's extra columns have the curve's scale; projections that were never loaded hold anything: about 10.
  const float scale = table ? 1.0f : options.pad == "random" ? 2.5f : 0.0f;
  std::vector<float> row(static_cast<std::size_t>(output.columns));
  for (std::int64_t r = 0; r < output.source.shape[0]; ++r) {
    fill_weight(spec, output.source, r * own, (r + 1) * own, row.data());
    for (std::int64_t c = 0; c < added; ++c)
      row[static_cast<std::size_t>(own + c)] =
          scale == 0.0f ? 0.0f : scale * stream.normal(static_cast<std::uint64_t>(r * added + c));
    if (auto written = writer.write(std::as_bytes(std::span(row))); !written)
      return written;
  }
  return {};
}

// Consecutive outputs, at most `limit` bytes a file; a tensor that is larger has a file of its own.
std::vector<std::vector<Output>> shards_of(std::vector<Output> outputs, std::int64_t limit) {
  std::vector<std::vector<Output>> shards(1);
  std::int64_t filled = 0;
  for (Output& output : outputs) {
    const std::int64_t bytes = bytes_of(output);
    if (limit > 0 && !shards.back().empty() && filled + bytes > limit) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(output));
  }
  return shards;
}

Result<void> write_checkpoint(const std::string& folder, const CaseSpec& source, const CaseSpec& stored,
                              const ExportOptions& options) {
  const std::string stem = options.layout == Layout::diffusers ? "diffusion_pytorch_model" : "model";
  std::vector<Output> outputs = outputs_of(source, stored, options.layout);
  std::int64_t total = 0, done = 0;
  for (const Output& output : outputs)
    total += bytes_of(output);
  const std::vector<std::vector<Output>> shards = shards_of(std::move(outputs), options.shard_bytes);
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string file = options.shard_bytes > 0
                                 ? fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard + 1, shards.size())
                                 : stem + ".safetensors";
    std::vector<SafetensorsWriter::Declared> declared;
    for (const Output& output : shards[shard]) {
      declared.push_back({output.file.name, output.source.dtype, output.file.shape});
      index["weight_map"][output.file.name] = file;
    }
    auto writer = SafetensorsWriter::create(join(folder, file), declared, {{"format", "pt"}});
    if (!writer)
      return writer.error();
    for (const Output& output : shards[shard]) {
      const bool padded = output.source.shape.size() > 1 && output.columns > output.source.shape[1];
      if (padded) {
        if (auto written = write_padded(*writer, source, options, output); !written)
          return written;
      } else {
        for (const RowRun& run : output.file.runs)
          if (auto written = write_rows(*writer, source, output, run); !written)
            return written;
      }
      done += bytes_of(output);
      if (options.progress)
        options.progress(done, total);
    }
    if (auto finished = writer->finish(); !finished)
      return finished;
  }
  if (options.shard_bytes > 0)
    if (auto written = write_text(join(folder, stem + ".safetensors.index.json"), index.dump(2) + "\n"); !written)
      return written;
  if (options.layout == Layout::comfy)
    return {}; // a single Comfy file has no config
  return write_text(join(folder, "config.json"), config_json(stored.shape, options.layout));
}

Result<void> write_inputs(const std::string& path, const Inputs& inputs) {
  const InputTensors tensors = input_tensors(inputs);
  auto writer = SafetensorsWriter::create(path, tensors.declared);
  if (!writer)
    return writer.error();
  for (const auto& bytes : tensors.bytes)
    if (auto written = writer->write(bytes); !written)
      return written;
  return writer->finish();
}

// [[index, rows], ...]: consecutive rows of one timestep.
nlohmann::ordered_json run_lengths(const std::vector<std::int64_t>& indices) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (std::size_t begin = 0; begin < indices.size();) {
    std::size_t end = begin;
    while (end < indices.size() && indices[end] == indices[begin])
      ++end;
    runs.push_back({indices[begin], end - begin});
    begin = end;
  }
  return runs;
}

std::string case_text(const CaseSpec& spec, const ExportOptions& options, const probes::SequenceLayout& layout) {
  nlohmann::ordered_json out = case_json(spec);
  out["layout"] = name(options.layout);
  out["cond_video_rows"] = layout.cond_video_rows;
  out["cond_audio_rows"] = layout.cond_audio_rows;
  const Schedule video = make_schedule(spec.steps, spec.shift_video),
                 audio = make_schedule(spec.steps, spec.shift_audio);
  out["schedule"] = nlohmann::ordered_json::array();
  for (std::size_t step = 0; step < std::min(video.timesteps.size(), audio.timesteps.size()); ++step) {
    const RowTimesteps rows = row_timesteps(layout, video.timesteps[step], audio.timesteps[step]);
    const std::vector<double> timesteps(rows.timesteps.begin(), rows.timesteps.end());
    out["schedule"].push_back({{"step", step},
                               {"sigma_video", static_cast<double>(video.sigmas[step])},
                               {"sigma_audio", static_cast<double>(audio.sigmas[step])},
                               {"sigma_video_next", static_cast<double>(video.sigmas[step + 1])},
                               {"sigma_audio_next", static_cast<double>(audio.sigmas[step + 1])},
                               {"timesteps", timesteps},
                               {"timestep_indices", run_lengths(rows.indices)}});
  }
  out["generator"] = {{"program", "h3diff"}, {"algorithm", "philox4x32-10"}};
  if (options.curve_grid > 0)
    out["generator"]["curve_rank"] = options.curve_rank;
  if (options.pad_columns > 0)
    out["generator"]["pad"] = options.pad;
  return out.dump(1) + "\n";
}

// Removes PATH.partial unless the export came to its end.
struct PartialFolder {
  std::string path;
  bool keep = false;
  ~PartialFolder() {
    std::error_code ignored;
    if (!keep)
      fs::remove_all(path, ignored);
  }
};

Result<void> check_options(const CaseSpec& spec, const ExportOptions& options) {
  const bool curve = options.curve_grid > 0 || options.curve_rank > 0 || spec.shape.curve();
  if (options.path.empty())
    return usage_error("export needs a path to write to");
  if ((options.curve_grid > 0) != (options.curve_rank > 0) || options.curve_grid == 1)
    return usage_error("a curve table needs at least 2 rows and 1 column");
  if (curve && options.layout == Layout::diffusers)
    return usage_error("the diffusers layout has no curve form; export it as raw or comfy");
  const std::int64_t rank = options.curve_rank > 0 ? options.curve_rank : spec.shape.time_embed_dim;
  if (options.pad_columns > 0 && (!curve || options.pad_columns <= rank))
    return usage_error(
        fmt::format("padding to {} columns needs a curve table with fewer columns than that", options.pad_columns));
  if (options.pad != "zero" && options.pad != "random")
    return usage_error(fmt::format("padding is zero or random, not {}", options.pad));
  if (fs::exists(options.path)) {
    if (!options.overwrite)
      return usage_error(fmt::format("{}: exists already", options.path));
    if (!is_bundle(options.path))
      return usage_error(fmt::format("{}: exists and is no bundle, so it is not overwritten", options.path));
  }
  return {};
}

} // namespace

Result<void> export_bundle(const CaseSpec& spec, const ExportOptions& options) {
  std::error_code failure;
  if (auto checked = check_options(spec, options); !checked)
    return checked;
  CaseSpec source = spec;
  if (options.curve_grid > 0) {
    source.shape.curve_grid = options.curve_grid;
    source.shape.time_embed_dim = options.curve_rank;
    source.shape.freq_dim = source.shape.time_embed_hidden_dim = 0;
  }
  CaseSpec stored = source;
  if (options.pad_columns > 0)
    stored.shape.time_embed_dim = options.pad_columns;

  std::string target = options.path;
  while (target.size() > 1 && target.ends_with('/'))
    target.pop_back();
  PartialFolder partial{target + ".partial"};
  fs::remove_all(partial.path, failure);       // of an export that was killed
  fs::create_directory(partial.path, failure); // not its parents: a typing error in a path is told
  if (!failure)
    fs::create_directory(join(partial.path, "transformer"), failure);
  if (failure)
    return environment_error(fmt::format("{}: cannot be created ({})", partial.path, failure.message()));

  const Inputs inputs = make_inputs(source);
  if (auto written = write_inputs(join(partial.path, "inputs.safetensors"), inputs); !written)
    return written;
  const std::string case_file = case_text(stored, options, inputs.sequence.layout);
  if (auto written = write_text(join(partial.path, "case.json"), case_file); !written)
    return written;
  if (auto written = write_checkpoint(join(partial.path, "transformer"), source, stored, options); !written)
    return written;

  if (options.overwrite)
    fs::remove_all(target, failure);
  fs::rename(partial.path, target, failure);
  if (failure)
    return environment_error(fmt::format("{}: cannot be created ({})", target, failure.message()));
  partial.keep = true;
  return {};
}

} // namespace h3diff::cases
