#include "h3diff/cases/case_spec.hpp"
#include "case_json.hpp"
#include "data_folder.hpp"
#include "file.hpp"
#include "h3diff/cases/profile.hpp" // data_folder
#include "h3diff/probes/capture.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include "json.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace h3diff::cases {

using nlohmann::json;
using probes::ModelShape;

namespace {

constexpr std::int64_t max_size = std::int64_t{1} << 24; // keeps products of two sizes far from overflow

Result<void> read_geometry(const json& value, const std::string& source, const ModelShape& shape, Geometry& out) {
  Fields fields(value, source, "geometry");
  fields.integer("text_rows", out.text_rows, 1, max_size);
  fields.integers("vision_rows", out.vision_rows, 0, max_size);
  fields.texts("keyframes", out.keyframes);
  fields.integers("reference_audio", out.reference_audio, 1, max_size);
  fields.integer("latent_frames", out.latent_frames, 1, 1 << 16);
  fields.integer("latent_height", out.latent_height, 1, 1 << 16);
  fields.integer("latent_width", out.latent_width, 1, 1 << 16);
  fields.integer("audio_latents", out.audio_latents, 1, max_size);
  if (!fields.has("text_rows"))
    fields.fail("text_rows", "is missing");
  for (const std::string& anchor : out.keyframes)
    if (anchor != "first" && anchor != "last")
      fields.fail("keyframes",
                  fmt::format("must hold \"first\" and \"last\", not \"{}\"", probes::printable(anchor, 40)));
  std::set<std::int64_t> seen;
  for (const std::int64_t row : out.vision_rows)
    if (row >= out.text_rows || !seen.insert(row).second)
      fields.fail("vision_rows", fmt::format("holds {}, which is no text row or is there twice", row));
  std::int64_t rows = out.text_rows + 2 * out.audio_latents;
  for (const std::int64_t latents : out.reference_audio)
    rows += 2 * latents;
  rows += (out.latent_frames + static_cast<std::int64_t>(out.keyframes.size())) *
          ((out.latent_height / shape.patch_h) * (out.latent_width / shape.patch_w));
  if (rows > max_size)
    fields.fail("latent_frames", fmt::format("and the other sizes make {} rows, more than {}", rows, max_size));
  if (out.latent_frames % shape.patch_t || out.latent_height % shape.patch_h || out.latent_width % shape.patch_w)
    fields.fail("latent_frames",
                fmt::format("x height x width ({} x {} x {}) is not a multiple of the patch ({} x {} x {})",
                            out.latent_frames, out.latent_height, out.latent_width, shape.patch_t, shape.patch_h,
                            shape.patch_w));
  return fields.finish_strict();
}

Result<void> read_weights(const json& value, const std::string& source, const ModelShape& shape, WeightStyle& out) {
  Fields fields(value, source, "weights");
  fields.text("dtype", out.dtype);
  if (out.dtype != "bfloat16" && out.dtype != "float32")
    fields.fail("dtype", "must be \"bfloat16\" or \"float32\"");
  fields.integer("outlier_channels", out.outlier_channels, 0, shape.hidden_size);
  fields.number("outlier_scale", out.outlier_scale, 0.0);
  fields.integer("sink_rows", out.sink_rows, 0, max_size);
  fields.number("sink_scale", out.sink_scale, 0.0);
  return fields.finish_strict();
}

} // namespace

Result<void> read_shape(const json& value, const std::string& source, ModelShape& out) {
  Fields fields(value, source, "shape");
  fields.integer("num_layers", out.num_layers, 1, 4096);
  fields.integer("num_refiner_layers", out.num_refiner_layers, 0, 4096);
  fields.integer("hidden_size", out.hidden_size, 1, max_size);
  fields.integer("num_attention_heads", out.num_attention_heads, 1, 1 << 16);
  fields.integer("attention_head_dim", out.attention_head_dim, 1, 1 << 16);
  fields.integer("ffn_dim", out.ffn_dim, 1, max_size);
  fields.integer("in_channels", out.in_channels, 1, 1 << 16);
  fields.integer("audio_in_channels", out.audio_in_channels, 1, max_size);
  fields.integer("patch_t", out.patch_t, 1, 64);
  fields.integer("patch_h", out.patch_h, 1, 64);
  fields.integer("patch_w", out.patch_w, 1, 64);
  fields.integer("text_dim", out.text_dim, 1, max_size);
  fields.integer("freq_dim", out.freq_dim, 0, max_size);
  fields.integer("time_embed_hidden_dim", out.time_embed_hidden_dim, 0, max_size);
  fields.integer("time_embed_dim", out.time_embed_dim, 1, max_size);
  fields.integer("rope_freq_dim", out.rope_freq_dim, 1, 1 << 16);
  fields.number("rope_theta", out.rope_theta, 0.0);
  fields.number("norm_eps", out.norm_eps, 0.0);
  fields.number("qk_norm_eps", out.qk_norm_eps, 0.0);
  fields.number("final_norm_eps", out.final_norm_eps, 0.0);
  fields.integer("curve_grid", out.curve_grid, 0, max_size);
  if (out.curve_grid == 1)
    fields.fail("curve_grid", "must be at least 2: the curve interpolates between rows");
  if (!out.curve() && (out.freq_dim < 2 || out.freq_dim % 2))
    fields.fail("freq_dim",
                fmt::format("must be even, not {}: it is one half cosines and one half sines", out.freq_dim));
  if (!out.curve() && out.time_embed_hidden_dim < 1)
    fields.fail("time_embed_hidden_dim", "must be at least 1");
  if (out.rotary_dim() > out.attention_head_dim)
    fields.fail("rope_freq_dim", fmt::format("makes {} rotary channels, which do not fit a head of {}",
                                             out.rotary_dim(), out.attention_head_dim));
  return fields.finish_strict();
}

nlohmann::ordered_json shape_json(const ModelShape& shape) {
  return {{"num_layers", shape.num_layers},
          {"num_refiner_layers", shape.num_refiner_layers},
          {"hidden_size", shape.hidden_size},
          {"num_attention_heads", shape.num_attention_heads},
          {"attention_head_dim", shape.attention_head_dim},
          {"ffn_dim", shape.ffn_dim},
          {"in_channels", shape.in_channels},
          {"audio_in_channels", shape.audio_in_channels},
          {"patch_t", shape.patch_t},
          {"patch_h", shape.patch_h},
          {"patch_w", shape.patch_w},
          {"text_dim", shape.text_dim},
          {"freq_dim", shape.freq_dim},
          {"time_embed_hidden_dim", shape.time_embed_hidden_dim},
          {"time_embed_dim", shape.time_embed_dim},
          {"rope_freq_dim", shape.rope_freq_dim},
          {"rope_theta", shape.rope_theta},
          {"norm_eps", shape.norm_eps},
          {"qk_norm_eps", shape.qk_norm_eps},
          {"final_norm_eps", shape.final_norm_eps},
          {"curve_grid", shape.curve_grid}};
}

Result<CaseSpec> CaseSpec::parse(std::string_view text, const std::string& source) {
  auto parsed = parse_json(text, source);
  if (!parsed)
    return parsed.error();
  CaseSpec spec;
  Fields fields(*parsed, source);
  fields.text("name", spec.name);
  if (spec.name.empty() || spec.name.find('/') != std::string::npos)
    fields.fail("name", "must be a word");
  fields.text("description", spec.description);
  if (const json* shape = fields.object("shape"))
    fields.merge(read_shape(*shape, source, spec.shape));
  if (const json* geometry = fields.object("geometry"))
    fields.merge(read_geometry(*geometry, source, spec.shape, spec.geometry));
  else
    fields.fail("geometry", "is missing");
  if (const json* weights = fields.object("weights"))
    fields.merge(read_weights(*weights, source, spec.shape, spec.weights));
  fields.unsigned_integer("seed", spec.seed);
  fields.integer("steps", spec.steps, 1, 10000);
  fields.number("shift_video", spec.shift_video, 0.0);
  fields.number("shift_audio", spec.shift_audio, 0.0);
  fields.text("capture", spec.capture);
  if (auto capture = probes::CaptureSpec::parse(spec.capture); !capture)
    fields.fail("capture", fmt::format("is no capture specification ({})", capture.error().message));
  for (const char* exported : {"layout", "cond_video_rows", "cond_audio_rows", "schedule", "generator"})
    fields.ignore(exported);
  if (auto read = fields.finish_strict(); !read)
    return read.error();
  return spec;
}

nlohmann::ordered_json case_json(const CaseSpec& spec) {
  const Geometry& g = spec.geometry;
  const WeightStyle& w = spec.weights;
  return {{"name", spec.name},
          {"description", spec.description},
          {"shape", shape_json(spec.shape)},
          {"geometry",
           {{"text_rows", g.text_rows},
            {"vision_rows", g.vision_rows},
            {"keyframes", g.keyframes},
            {"reference_audio", g.reference_audio},
            {"latent_frames", g.latent_frames},
            {"latent_height", g.latent_height},
            {"latent_width", g.latent_width},
            {"audio_latents", g.audio_latents}}},
          {"weights",
           {{"dtype", w.dtype},
            {"outlier_channels", w.outlier_channels},
            {"outlier_scale", w.outlier_scale},
            {"sink_rows", w.sink_rows},
            {"sink_scale", w.sink_scale}}},
          {"seed", spec.seed},
          {"steps", spec.steps},
          // As float64, so that a reader in any language gets the float32 value that ran.
          {"shift_video", static_cast<double>(spec.shift_video)},
          {"shift_audio", static_cast<double>(spec.shift_audio)},
          {"capture", spec.capture}};
}

std::string CaseSpec::to_json() const { return case_json(*this).dump(2) + "\n"; }

std::vector<std::string> case_names() { return data_names("cases"); }

Result<CaseSpec> load_case(const std::string& wanted) {
  const auto names = case_names();
  if (std::find(names.begin(), names.end(), wanted) == names.end())
    return usage_error(fmt::format("unknown case \"{}\"; {}", probes::printable(wanted, 60),
                                   names.empty() ? fmt::format("there are none in {}", data_folder())
                                                 : fmt::format("known are {}", fmt::join(names, ", "))));
  const std::string path = join(join(data_folder(), "cases"), wanted + ".json");
  auto text = read_text(path);
  if (!text)
    return text.error();
  auto spec = CaseSpec::parse(*text, path);
  if (spec && spec->name != wanted)
    return bad_input(fmt::format("{}: name must be \"{}\"", path, wanted));
  return spec;
}

} // namespace h3diff::cases
