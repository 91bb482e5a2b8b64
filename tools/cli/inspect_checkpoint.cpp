#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/checkpoint.hpp"
#include "h3diff/cases/safetensors.hpp"
#include "h3diff/probes/dump.hpp"
#include "inspect.hpp"
#include "terminal.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <map>

namespace h3diff::cli {
namespace {

using nlohmann::json;
using probes::printable;

struct Sum {
  std::int64_t tensors = 0, bytes = 0;
};

struct Files {
  std::vector<std::string> paths; // safetensors files, sorted
  std::map<std::string, Sum> by_dtype;
  Sum total;
  std::vector<std::string> odd;
};

Result<Files> read_files(const std::string& path) {
  Files files;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, error))
      if (entry.path().extension() == ".safetensors")
        files.paths.push_back(entry.path().string());
    std::sort(files.paths.begin(), files.paths.end());
    if (files.paths.empty())
      return bad_input(fmt::format("{}: neither a bundle nor a checkpoint: no safetensors file in this folder", path));
  } else {
    files.paths.push_back(path);
  }
  std::map<std::string, std::int64_t> unknown;
  for (const std::string& file : files.paths) {
    const auto opened = cases::SafetensorsFile::open(file);
    if (!opened)
      return opened.error();
    for (const cases::TensorEntry& tensor : opened->tensors()) {
      Sum& sum = files.by_dtype[tensor.dtype_name];
      ++sum.tensors;
      ++files.total.tensors;
      sum.bytes += static_cast<std::int64_t>(tensor.bytes.size());
      files.total.bytes += static_cast<std::int64_t>(tensor.bytes.size());
      if (!tensor.dtype)
        ++unknown[tensor.dtype_name];
    }
  }
  for (const auto& [dtype, n] : unknown)
    files.odd.push_back(fmt::format("{} of dtype {}, which no probe reads", plural(n, "tensor"), printable(dtype)));
  return files;
}

bool is_island(std::string_view module) {
  for (const std::string_view island :
       {"video_patch_proj", "audio_patch_proj", "time_embedder", "final_layer.video_out", "final_layer.audio_out"})
    if (module.substr(0, island.size()) == island)
      return true;
  return false;
}

void look_for_oddities(const cases::Checkpoint& checkpoint, std::vector<std::string>& odd) {
  if (!checkpoint.shape_from_config())
    odd.push_back("there is no config.json: the shape is read off the tensors, eps and theta are the published ones");
  std::int64_t narrow_islands = 0, narrow_curve = 0;
  std::string first;
  for (const cases::WeightInfo& weight : checkpoint.weights()) {
    if (is_island(weight.module) && weight.dtype != probes::DType::float32) {
      if (narrow_islands++ == 0)
        first = weight.name;
    }
    if (checkpoint.shape().curve() && weight.name.find("adaln") != std::string::npos &&
        weight.dtype != probes::DType::float32)
      ++narrow_curve;
  }
  if (narrow_islands > 0)
    odd.push_back(fmt::format("{} of the float32 islands (patch projections, time embedder, output heads) stored "
                              "narrower, first {}",
                              plural(narrow_islands, "weight"), first));
  if (narrow_curve > 0)
    odd.push_back(
        fmt::format("{} of the curve form stored narrower than float32", plural(narrow_curve, "AdaLN weight")));
}

std::string shape_text(const probes::ModelShape& shape) {
  return fmt::format("{} blocks, {} refiner blocks, hidden {}, {} heads x {}, ffn {}, text {}, AdaLN {}",
                     shape.num_layers, shape.num_refiner_layers, shape.hidden_size, shape.num_attention_heads,
                     shape.attention_head_dim, shape.ffn_dim, shape.text_dim,
                     shape.curve() ? fmt::format("curve, table {} x {}", shape.curve_grid, shape.time_embed_dim)
                                   : fmt::format("mlp, time embedding {}", shape.time_embed_dim));
}

std::string files_text(const Files& files, const Ink& ink) {
  Table table({{"dtype", false}, {"tensors", true}, {"size", true}});
  for (const auto& [dtype, sum] : files.by_dtype)
    table.add({printable(dtype), count(sum.tensors), byte_size(sum.bytes)});
  table.add({"all", count(files.total.tensors), byte_size(files.total.bytes)}, Table::Tone::plain);
  return heading(ink, "tensors", fmt::format(" in {}", plural(static_cast<std::int64_t>(files.paths.size()), "file"))) +
         table.text(ink);
}

std::string odd_text(const std::vector<std::string>& odd, const Ink& ink) {
  if (odd.empty())
    return {};
  std::string out = heading(ink, "odd");
  for (const std::string& sentence : odd)
    out += paragraph(printable(sentence, 600), "  - ", "    ");
  return out;
}

void files_record(const Files& files, json& record) {
  record["files"] = files.paths;
  record["tensors"] = files.total.tensors;
  record["bytes"] = files.total.bytes;
  for (const auto& [dtype, sum] : files.by_dtype)
    record["dtypes"][dtype] = {{"tensors", sum.tensors}, {"bytes", sum.bytes}};
}

Inspection describe(const std::string& path, const cases::Checkpoint& checkpoint, Files files, std::string_view kind,
                    const std::string& extra) {
  const Ink ink = Ink::for_stream(1);
  look_for_oddities(checkpoint, files.odd);
  Inspection out;
  out.text = fmt::format("{}  {}, layout {}, {}\n", ink.bold(path), kind, cases::name(checkpoint.layout()),
                         byte_size(files.total.bytes));
  out.text += paragraph(shape_text(checkpoint.shape()));
  out.text += fmt::format("  digest of names, dtypes and shapes {}\n", checkpoint.digest());
  out.text += extra + files_text(files, ink) + odd_text(files.odd, ink);
  const probes::ModelShape& shape = checkpoint.shape();
  out.record = {{"kind", kind},
                {"path", path},
                {"layout", cases::name(checkpoint.layout())},
                {"shape_from_config", checkpoint.shape_from_config()},
                {"checkpoint_digest", checkpoint.digest()},
                {"shape",
                 {{"num_layers", shape.num_layers},
                  {"num_refiner_layers", shape.num_refiner_layers},
                  {"hidden_size", shape.hidden_size},
                  {"num_attention_heads", shape.num_attention_heads},
                  {"attention_head_dim", shape.attention_head_dim},
                  {"ffn_dim", shape.ffn_dim},
                  {"text_dim", shape.text_dim},
                  {"time_embed_dim", shape.time_embed_dim},
                  {"curve_grid", shape.curve_grid}}},
                {"odd", files.odd}};
  files_record(files, out.record);
  return out;
}

cases::Checkpoint::Options options_of(const InspectArguments& arguments) {
  cases::Checkpoint::Options options;
  if (!arguments.layout.empty())
    options.layout = cases::parse_layout(arguments.layout);
  return options;
}

} // namespace

Result<Inspection> inspect_checkpoint(const InspectArguments& arguments) {
  auto files = read_files(arguments.path);
  if (!files)
    return files.error();
  const auto checkpoint = cases::Checkpoint::open(arguments.path, options_of(arguments));
  if (checkpoint)
    return describe(arguments.path, *checkpoint, std::move(*files), "checkpoint", "");
  if (checkpoint.error().code != ExitCode::usage)
    return checkpoint.error();
  // Raw and comfy look alike here: what is certain is still worth showing.
  const Ink ink = Ink::for_stream(1);
  files->odd.push_back(checkpoint.error().message);
  Inspection out;
  out.text = fmt::format("{}  checkpoint, layout raw or comfy, {}\n", ink.bold(arguments.path),
                         byte_size(files->total.bytes)) +
             files_text(*files, ink) + odd_text(files->odd, ink);
  out.record = {{"kind", "checkpoint"}, {"path", arguments.path}, {"layout", nullptr}, {"odd", files->odd}};
  files_record(*files, out.record);
  return out;
}

Result<Inspection> inspect_bundle(const InspectArguments& arguments) {
  const auto bundle = cases::open_bundle(arguments.path, options_of(arguments));
  if (!bundle)
    return bundle.error();
  auto files = read_files(bundle->checkpoint.path());
  if (!files)
    return files.error();
  const cases::Inputs& inputs = bundle->inputs;
  std::string rows;
  for (const probes::SegmentRows& segment :
       probes::segment_table(inputs.sequence.layout, probes::RowSpace::packed, inputs.timesteps.timesteps))
    rows += fmt::format("{}{} {}", rows.empty() ? "" : ", ", probes::name(segment.segment), count(segment.rows));
  std::string extra = paragraph(fmt::format("{} packed rows: {}", count(inputs.sequence.layout.rows), rows));
  extra += bundle->has_case
               ? paragraph(fmt::format("case {}, seed {}, {}, shift {} for video and {} for audio",
                                       printable(bundle->case_name), bundle->seed, plural(bundle->steps, "step"),
                                       bundle->shift_video, bundle->shift_audio))
               : paragraph("no case.json: one step at the given timesteps, nothing is conditioning");
  Inspection out = describe(arguments.path, bundle->checkpoint, std::move(*files), "bundle", extra);
  out.record["case"] = bundle->has_case ? json(bundle->case_name) : json(nullptr);
  out.record["case_digest"] = bundle->case_digest;
  out.record["steps"] = bundle->steps;
  out.record["seed"] = bundle->seed;
  out.record["rows"] = inputs.sequence.layout.rows;
  return out;
}

} // namespace h3diff::cli
