#include "checkpoint_config.hpp"
#include "json.hpp"
#include <array>
#include <fmt/format.h>

namespace h3diff::cases {

using nlohmann::json;
using probes::ModelShape;

namespace {

struct SizeKey {
  const char* diffusers;
  const char* raw;
  std::int64_t ModelShape::*member;
};

constexpr std::array size_keys{
    SizeKey{"num_layers", "num_layers", &ModelShape::num_layers},
    SizeKey{"num_refiner_layers", "token_refiner_num_layers", &ModelShape::num_refiner_layers},
    SizeKey{"hidden_size", "hidden_size", &ModelShape::hidden_size},
    SizeKey{"num_attention_heads", "num_attention_heads", &ModelShape::num_attention_heads},
    SizeKey{"attention_head_dim", "attention_head_dim", &ModelShape::attention_head_dim},
    SizeKey{"ffn_dim", "ffn_hidden_size", &ModelShape::ffn_dim},
    SizeKey{"in_channels", "latents_dim", &ModelShape::in_channels},
    SizeKey{"audio_in_channels", "audio_latents_dim", &ModelShape::audio_in_channels},
    SizeKey{"text_dim", "text_dim", &ModelShape::text_dim},
    SizeKey{"freq_dim", "timestep_input_dim", &ModelShape::freq_dim},
    SizeKey{"time_embed_hidden_dim", "time_embed_hidden_size", &ModelShape::time_embed_hidden_dim},
    SizeKey{"time_embed_dim", "time_embed_dim", &ModelShape::time_embed_dim},
    SizeKey{"rope_freq_dim", "rope_inv_freq_len", &ModelShape::rope_freq_dim},
};

struct NumberKey {
  const char* name; // the same in both
  double ModelShape::*member;
};

constexpr std::array number_keys{
    NumberKey{"norm_eps", &ModelShape::norm_eps},
    NumberKey{"qk_norm_eps", &ModelShape::qk_norm_eps},
    NumberKey{"final_norm_eps", &ModelShape::final_norm_eps},
    NumberKey{"rope_theta", &ModelShape::rope_theta},
};

} // namespace

bool is_raw_config(const json& config) {
  if (!config.is_object())
    return false;
  for (const char* key : {"token_refiner_num_layers", "ffn_hidden_size", "latents_dim", "audio_latents_dim",
                          "timestep_input_dim", "time_embed_hidden_size", "rope_inv_freq_len"})
    if (config.contains(key))
      return true;
  return false;
}

Result<void> apply_config(const json& config, const std::string& source, ModelShape& shape) {
  const bool raw = is_raw_config(config);
  Fields fields(config, source);
  // Generous limits: they only keep products of two sizes far from overflow.
  for (const SizeKey& key : size_keys)
    fields.integer(
        raw ? key.raw : key.diffusers, shape.*key.member, key.member == &ModelShape::num_refiner_layers ? 0 : 1,
        key.member == &ModelShape::num_layers || key.member == &ModelShape::num_refiner_layers ? 4096 : 1 << 24);
  for (const NumberKey& key : number_keys)
    fields.number(key.name, shape.*key.member, 0.0);
  std::vector<std::int64_t> patch{shape.patch_t, shape.patch_h, shape.patch_w};
  fields.integers("patch_size", patch, 1, 64);
  if (patch.size() != 3)
    fields.fail("patch_size", "must hold three integers");
  if (auto read = fields.finish(); !read)
    return read;
  shape.patch_t = patch[0];
  shape.patch_h = patch[1];
  shape.patch_w = patch[2];
  return {};
}

std::string first_difference(const ModelShape& found, const ModelShape& stated) {
  const auto tell = [](const char* key, auto a, auto b) { return fmt::format("{} is {} and not {}", key, a, b); };
  for (const SizeKey& key : size_keys)
    if (found.*key.member != stated.*key.member)
      return tell(key.diffusers, found.*key.member, stated.*key.member);
  for (const NumberKey& key : number_keys)
    if (found.*key.member != stated.*key.member)
      return tell(key.name, found.*key.member, stated.*key.member);
  if (found.curve_grid != stated.curve_grid)
    return tell("curve_grid", found.curve_grid, stated.curve_grid);
  return found == stated ? "" : "the patch size differs";
}

std::string config_json(const ModelShape& shape, Layout layout) {
  nlohmann::ordered_json config;
  if (layout == Layout::diffusers)
    config["_class_name"] = "MiniMaxH3Transformer3DModel";
  for (const SizeKey& key : size_keys) {
    const bool mlp_only = key.member == &ModelShape::freq_dim || key.member == &ModelShape::time_embed_hidden_dim;
    if (!shape.curve() || !mlp_only)
      config[layout == Layout::diffusers ? key.diffusers : key.raw] = shape.*key.member;
  }
  config["patch_size"] = {shape.patch_t, shape.patch_h, shape.patch_w};
  for (const NumberKey& key : number_keys)
    config[key.name] = shape.*key.member;
  return config.dump(2) + "\n";
}

} // namespace h3diff::cases
