#include "case_source.hpp"
#include "h3diff/cases/bundle.hpp"
#include "h3diff/probes/dump.hpp"
#include "terminal.hpp"
#include "verbs.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <memory>

namespace h3diff::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::string source, json;
  bool probes = false;
};

std::int64_t weight_bytes(const cases::CaseSpec& spec) {
  std::int64_t total = 0;
  for (const cases::SyntheticWeight& weight : cases::weight_list(spec)) {
    std::int64_t elements = 1;
    for (const std::int64_t size : weight.shape)
      elements *= size;
    total += elements * static_cast<std::int64_t>(probes::item_size(weight.dtype));
  }
  return total;
}

std::string rows_by_segment(const probes::SegmentTable& segments) {
  std::string text;
  for (const probes::SegmentRows& segment : segments)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", probes::name(segment.segment), count(segment.rows));
  return text;
}

// ---- case list

int list(const Arguments& arguments) {
  Table table({{"case", false, false},
               {"rows", true, false},
               {"blocks", true, false},
               {"hidden", true, false},
               {"weights", true, false},
               {"steps", true, false},
               {"what it is for", false, false, true}});
  json record = json::array();
  for (const std::string& name : cases::case_names()) {
    const auto spec = cases::load_case(name);
    if (!spec)
      return fail(spec.error(), arguments.json);
    const cases::PackedSequence sequence = cases::pack(spec->geometry, spec->shape);
    table.add({name, count(sequence.layout.rows), count(spec->shape.num_layers), count(spec->shape.hidden_size),
               byte_size(weight_bytes(*spec)), count(spec->steps), spec->description});
    record.push_back({{"name", name},
                      {"rows", sequence.layout.rows},
                      {"num_layers", spec->shape.num_layers},
                      {"hidden_size", spec->shape.hidden_size},
                      {"weight_bytes", weight_bytes(*spec)},
                      {"steps", spec->steps},
                      {"description", spec->description}});
  }
  const int code = arguments.json == "-" ? 0 : print_report(table.text(Ink::for_stream(1), 0), 0);
  return write_json({{"cases", record}}, arguments.json, code);
}

// ---- case show

std::string shape_text(const probes::ModelShape& shape) {
  return fmt::format("{} blocks, {} refiner blocks, hidden {}, {} heads x {}, ffn {}, rotary {} per axis, text {}",
                     shape.num_layers, shape.num_refiner_layers, shape.hidden_size, shape.num_attention_heads,
                     shape.attention_head_dim, shape.ffn_dim, shape.rope_freq_dim, shape.text_dim);
}

std::string facts_text(const cases::CaseSpec& spec, const Ink& ink) {
  const cases::PackedSequence sequence = cases::pack(spec.geometry, spec.shape);
  const cases::Geometry& geometry = spec.geometry;
  const auto segments = probes::segment_table(sequence.layout, probes::RowSpace::packed, {});
  const auto line = [](std::string_view name, const std::string& text) {
    return paragraph(text, fmt::format("  {:<11}", name), std::string(13, ' '));
  };
  std::string out = ink.bold(probes::printable(spec.name)) + "\n";
  if (!spec.description.empty())
    out += paragraph(probes::printable(spec.description, 400), "  ", "  ");
  out += line("model", shape_text(spec.shape));
  out += line("AdaLN", spec.shape.curve()
                           ? fmt::format("curve, table {} x {}", spec.shape.curve_grid, spec.shape.time_embed_dim)
                           : fmt::format("mlp, time embedding {}", spec.shape.time_embed_dim));
  out += line("sequence", fmt::format("{} rows: {}", count(sequence.layout.rows), rows_by_segment(segments)));
  out += line("latents", fmt::format("video {} x {} x {}, audio {} per channel", geometry.latent_frames,
                                     geometry.latent_height, geometry.latent_width, geometry.audio_latents));
  out += line("schedule", fmt::format("{}, shift {} for video and {} for audio", plural(spec.steps, "step"),
                                      spec.shift_video, spec.shift_audio));
  std::string weights = fmt::format("{}, {}", byte_size(weight_bytes(spec)), spec.weights.dtype);
  if (spec.weights.outlier_channels > 0)
    weights +=
        fmt::format(", {} x {}", plural(spec.weights.outlier_channels, "outlier channel"), spec.weights.outlier_scale);
  if (spec.weights.sink_rows > 0)
    weights += fmt::format(", {} x {}", plural(spec.weights.sink_rows, "sink row"), spec.weights.sink_scale);
  out += line("weights", fmt::format("{}, seed {}", weights, spec.seed));
  out += line("capture", spec.capture);
  return out;
}

std::string_view space_name(probes::RowSpace space) {
  switch (space) {
  case probes::RowSpace::packed: return "packed";
  case probes::RowSpace::text: return "text";
  case probes::RowSpace::video: return "video";
  case probes::RowSpace::audio: return "audio";
  case probes::RowSpace::modulation: return "modulation";
  case probes::RowSpace::timesteps: return "timesteps";
  case probes::RowSpace::other: return "other";
  }
  return "other";
}

// Rows that a probe of step 0 has in this case.
std::int64_t probe_rows(const probes::ProbeInfo& probe, const probes::SequenceLayout& layout,
                        std::span<const float> timesteps) {
  if (probe.rows > 0)
    return probe.rows;
  std::int64_t rows = 0;
  for (const probes::SegmentRows& segment : probes::segment_table(layout, probe.space, timesteps))
    rows += segment.rows;
  return rows;
}

void add_probes(const cases::CaseSpec& spec, const Ink& ink, std::string& text, json& record) {
  const probes::Graph graph(spec.shape);
  const cases::PackedSequence sequence = cases::pack(spec.geometry, spec.shape);
  // Step 0 starts from noise: sigma is 1, so t is 0 for both modalities.
  const cases::RowTimesteps times = cases::row_timesteps(sequence.layout, 0.0f, 0.0f);
  std::map<std::string, std::string> weight_dtype;
  for (const cases::SyntheticWeight& weight : cases::weight_list(spec))
    weight_dtype["weights." + weight.name] = std::string(probes::name(weight.dtype));

  Table table({{"probe", false, false},
               {"op", false, false},
               {"space", false, false},
               {"rows", true, false},
               {"columns", true, false},
               {"dtype", false, false},
               {"meaning", false, false}});
  for (const probes::ProbeInfo& probe : graph.probes()) {
    const std::int64_t rows = probe_rows(probe, sequence.layout, times.timesteps);
    std::string dtype = "profile's"; // activations: as the profile computes
    if (probe.weight) {
      const auto stored = weight_dtype.find(probe.name + ".weight");
      const auto linear = weight_dtype.find(probe.name + ".linear.weight");
      const auto exact = weight_dtype.find(probe.name);
      dtype = stored != weight_dtype.end()   ? stored->second
              : linear != weight_dtype.end() ? linear->second
              : exact != weight_dtype.end()  ? exact->second
                                             : spec.weights.dtype;
    } else if (probe.name == "input.timestep_indices" || probe.name == "input.token_tags") {
      dtype = "int32";
    } else if (probe.name == "input.timestep" || probe.name == "input.position_ids") {
      dtype = "float32";
    }
    table.add({probe.name, probe.op, std::string(space_name(probe.space)), count(rows), count(probe.cols), dtype,
               probe.meaning});
    json inputs = json::array();
    for (const probes::ProbeInput& input : probe.inputs)
      inputs.push_back(input.probe);
    record.push_back({{"probe", probe.name},
                      {"op", probe.op},
                      {"space", space_name(probe.space)},
                      {"rows", rows},
                      {"columns", probe.cols},
                      {"dtype", dtype},
                      {"meaning", probe.meaning},
                      {"inputs", inputs}});
  }
  const auto total = static_cast<std::int64_t>(graph.probes().size());
  text += heading(ink, fmt::format("{} probes in execution order", count(total))) + table.text(ink, 2, 200);
}

int show(const Arguments& arguments) {
  const auto spec = read_case(arguments.source);
  if (!spec)
    return fail(spec.error(), arguments.json);
  const Ink ink = Ink::for_stream(1);
  std::string text = facts_text(*spec, ink);
  json record{{"case", json::parse(spec->to_json())}};
  if (arguments.probes)
    add_probes(*spec, ink, text, record["probes"]);
  const int code = arguments.json == "-" ? 0 : print_report(text, 0);
  return write_json(record, arguments.json, code);
}

} // namespace

void add_case(CLI::App& app, Program& program) {
  CLI::App* verb = add_verb(app, "case", "The named problems: list them, show one, export one as a bundle",
                            "h3diff case export tiny --layout diffusers -o tiny-bundle", {0, 3, 5});
  verb->require_subcommand(1);

  const auto listing = std::make_shared<Arguments>();
  CLI::App* list_verb = add_verb(*verb, "list", "The cases that this installation knows", "h3diff case list", {0, 5});
  add_json_option(*list_verb, listing->json);
  list_verb->callback([&program, listing] { program.action = [listing] { return list(*listing); }; });

  const auto showing = std::make_shared<Arguments>();
  CLI::App* show_verb = add_verb(*verb, "show", "What a case is; with --probes, every probe of its run",
                                 "h3diff case show small --probes", {0, 3});
  show_verb->add_option("CASE", showing->source, "A case's name, or a JSON file (with a '/' or ending in .json)")
      ->required()
      ->type_name("");
  show_verb->add_flag("--probes", showing->probes, "List names, ops, shapes and dtypes in execution order");
  add_json_option(*show_verb, showing->json);
  show_verb->callback([&program, showing] { program.action = [showing] { return show(*showing); }; });

  add_case_export(*verb, program);
}

} // namespace h3diff::cli
