#include "layout_table.hpp"
#include <array>
#include <fmt/format.h>

namespace h3diff::cases {

using probes::ModelShape;

namespace {

// Sizes, by the letters of docs/checkpoints.md.
enum Size {
  none,
  H,   // hidden
  I,   // inner: heads x head dim
  QKV, // 3 I
  D,   // head dim
  F,   // ffn
  FC1, // 2 F
  V,   // video row
  A,   // audio row
  X,   // text
  S,   // sinusoid
  TH,  // time hidden
  T,   // time embedding, or the curve table's width
  G,   // curve table's rows
  M,   // modulation: 3 tags x 6 vectors x H
  M2,  // final modulation: shift and scale
  R,   // rotary frequencies per axis
};

enum class Rows {
  same,
  qkv, // internal and Comfy [q; k; v]; raw [q k v] per head; diffusers three tensors
  fc1, // internal, raw and Comfy [gate; value]; diffusers [value; gate]
};

enum class When { always, mlp, curve }; // form of the AdaLN

struct Rule {
  std::string_view name;      // raw and Comfy; {r}: refiner block, {b}: block
  std::string_view diffusers; // "": has none; {x} stands for q, k and v
  Size rows, columns = none;
  Rows order = Rows::same;
  bool island = false;
  When when = When::always;
};

constexpr bool float32 = true;
using enum Rows;
using enum When;

// clang-format off
constexpr std::array rules{
  //   raw and Comfy                                  diffusers                                              rows columns
  Rule{"video_patch_proj.weight",                     "proj_in.weight",                                      H,   V,    same, float32},
  Rule{"video_patch_proj.bias",                       "proj_in.bias",                                        H,   none, same, float32},
  Rule{"audio_patch_proj.weight",                     "audio_proj_in.weight",                                H,   A,    same, float32},
  Rule{"audio_patch_proj.bias",                       "audio_proj_in.bias",                                  H,   none, same, float32},
  Rule{"condition_proj.weight",                       "context_embedder.weight",                             H,   X},
  Rule{"condition_proj.bias",                         "context_embedder.bias",                               H},

  Rule{"token_refiner.blocks.{r}.norm1.weight",         "token_refiner.refiner_blocks.{r}.norm1.weight",         H},
  Rule{"token_refiner.blocks.{r}.attn.qkv_proj.weight", "token_refiner.refiner_blocks.{r}.attn.to_{x}.weight",   QKV, H,    qkv},
  Rule{"token_refiner.blocks.{r}.attn.q_norm.weight",   "token_refiner.refiner_blocks.{r}.attn.norm_q.weight",   D},
  Rule{"token_refiner.blocks.{r}.attn.k_norm.weight",   "token_refiner.refiner_blocks.{r}.attn.norm_k.weight",   D},
  Rule{"token_refiner.blocks.{r}.attn.out_proj.weight", "token_refiner.refiner_blocks.{r}.attn.to_out.0.weight", H,   I},
  Rule{"token_refiner.blocks.{r}.norm2.weight",         "token_refiner.refiner_blocks.{r}.norm2.weight",         H},
  Rule{"token_refiner.blocks.{r}.mlp.fc1.weight",       "token_refiner.refiner_blocks.{r}.ff.net.0.proj.weight", FC1, H,    fc1},
  Rule{"token_refiner.blocks.{r}.mlp.fc2.weight",       "token_refiner.refiner_blocks.{r}.ff.net.2.weight",      H,   F},
  Rule{"token_refiner.final_norm.weight",               "token_refiner.final_norm.weight",                       H},

  Rule{"rope.inv_freq",                               "",                                                    R,   none, same, float32},
  Rule{"time_embedder.proj_in.weight",                "time_embedder.linear_1.weight",                       TH,  S,    same, float32, mlp},
  Rule{"time_embedder.proj_in.bias",                  "time_embedder.linear_1.bias",                         TH,  none, same, float32, mlp},
  Rule{"time_embedder.proj_out.weight",               "time_embedder.linear_2.weight",                       T,   TH,   same, float32, mlp},
  Rule{"time_embedder.proj_out.bias",                 "time_embedder.linear_2.bias",                         T,   none, same, float32, mlp},
  Rule{"adaln_t_table",                               "",                                                    G,   T,    same, float32, curve},

  Rule{"blocks.{b}.adaln_proj.linear.weight",         "transformer_blocks.{b}.adaln_proj.linear.weight",     M,   T},
  Rule{"blocks.{b}.adaln_proj.linear.bias",           "transformer_blocks.{b}.adaln_proj.linear.bias",       M},
  Rule{"blocks.{b}.norm1.weight",                     "transformer_blocks.{b}.norm1.weight",                 H},
  Rule{"blocks.{b}.attn.qkv_proj.weight",             "transformer_blocks.{b}.attn.to_{x}.weight",           QKV, H,    qkv},
  Rule{"blocks.{b}.attn.q_norm.weight",               "transformer_blocks.{b}.attn.norm_q.weight",           D},
  Rule{"blocks.{b}.attn.k_norm.weight",               "transformer_blocks.{b}.attn.norm_k.weight",           D},
  Rule{"blocks.{b}.attn.out_proj.weight",             "transformer_blocks.{b}.attn.to_out.0.weight",         H,   I},
  Rule{"blocks.{b}.norm2.weight",                     "transformer_blocks.{b}.norm2.weight",                 H},
  Rule{"blocks.{b}.mlp.fc1.weight",                   "transformer_blocks.{b}.ff.net.0.proj.weight",         FC1, H,    fc1},
  Rule{"blocks.{b}.mlp.fc2.weight",                   "transformer_blocks.{b}.ff.net.2.weight",              H,   F},

  Rule{"final_layer.adaln_proj.linear.weight",        "norm_out.linear.weight",                              M2,  T},
  Rule{"final_layer.adaln_proj.linear.bias",          "norm_out.linear.bias",                                M2},
  Rule{"final_layer.norm.weight",                     "norm_out.norm.weight",                                H},
  Rule{"final_layer.video_out.weight",                "proj_out.weight",                                     V,   H,    same, float32},
  Rule{"final_layer.video_out.bias",                  "proj_out.bias",                                       V,   none, same, float32},
  Rule{"final_layer.audio_out.weight",                "audio_proj_out.weight",                               A,   H,    same, float32},
  Rule{"final_layer.audio_out.bias",                  "audio_proj_out.bias",                                 A,   none, same, float32},
};
// clang-format on

std::int64_t size_of(Size size, const ModelShape& shape) {
  switch (size) {
  case none: return 0;
  case H: return shape.hidden_size;
  case I: return shape.inner_dim();
  case QKV: return 3 * shape.inner_dim();
  case D: return shape.attention_head_dim;
  case F: return shape.ffn_dim;
  case FC1: return 2 * shape.ffn_dim;
  case V: return shape.video_patch_dim();
  case A: return shape.audio_in_channels;
  case X: return shape.text_dim;
  case S: return shape.freq_dim;
  case TH: return shape.time_embed_hidden_dim;
  case T: return shape.time_embed_dim;
  case G: return shape.curve_grid;
  case M: return 18 * shape.hidden_size;
  case M2: return 2 * shape.hidden_size;
  case R: return shape.rope_freq_dim;
  }
  return 0;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out(text);
  if (from.empty())
    return out;
  if (const auto at = out.find(from); at != std::string::npos)
    out.replace(at, from.size(), to);
  return out;
}

std::vector<FileTensor> parts_of(const Rule& rule, const std::vector<std::int64_t>& shape, Layout layout,
                                 const ModelShape& model, std::string_view diffusers_name,
                                 std::string_view internal_name) {
  const std::int64_t rows = shape.front();
  if (layout != Layout::diffusers) {
    FileTensor whole{std::string(internal_name), shape, {{0, rows}}};
    if (rule.order == qkv && layout == Layout::raw) {
      whole.runs.clear();
      for (std::int64_t head = 0; head < model.num_attention_heads; ++head)
        for (std::int64_t which = 0; which < 3; ++which)
          whole.runs.push_back({which * model.inner_dim() + head * model.attention_head_dim, model.attention_head_dim});
    }
    return {whole};
  }
  if (diffusers_name.empty())
    return {};
  if (rule.order == qkv) {
    std::vector<FileTensor> three;
    for (std::int64_t which = 0; which < 3; ++which)
      three.push_back({replaced(diffusers_name, "{x}", std::string_view("qkv").substr(which, 1)),
                       {model.inner_dim(), shape[1]},
                       {{which * model.inner_dim(), model.inner_dim()}}});
    return three;
  }
  if (rule.order == fc1)
    return {{std::string(diffusers_name), shape, {{model.ffn_dim, model.ffn_dim}, {0, model.ffn_dim}}}};
  return {{std::string(diffusers_name), shape, {{0, rows}}}};
}

void append(std::vector<LayoutWeight>& out, const Rule& rule, const ModelShape& model, Layout layout,
            std::string_view marker = "", std::int64_t number = 0) {
  LayoutWeight weight;
  weight.name = replaced(rule.name, marker, std::to_string(number));
  weight.shape = {size_of(rule.rows, model)};
  if (rule.columns != none)
    weight.shape.push_back(size_of(rule.columns, model));
  // Curve checkpoints keep every AdaLN projection in float32.
  weight.island = rule.island || (model.curve() && weight.name.find("adaln_proj") != std::string::npos);
  weight.parts = parts_of(rule, weight.shape, layout, model, replaced(rule.diffusers, marker, std::to_string(number)),
                          weight.name);
  out.push_back(std::move(weight));
}

} // namespace

std::vector<LayoutWeight> layout_weights(const ModelShape& model, Layout layout) {
  std::vector<LayoutWeight> out;
  for (std::size_t i = 0; i < rules.size();) {
    const auto marker_of = [](const Rule& rule) -> std::string_view {
      if (rule.name.find("{r}") != std::string_view::npos)
        return "{r}";
      return rule.name.find("{b}") != std::string_view::npos ? "{b}" : "";
    };
    const std::string_view marker = marker_of(rules[i]);
    if (marker.empty()) {
      const Rule& rule = rules[i++];
      if (rule.when == always || (rule.when == curve) == model.curve())
        append(out, rule, model, layout);
      continue;
    }
    std::size_t end = i;
    while (end < rules.size() && marker_of(rules[end]) == marker)
      ++end;
    const std::int64_t repeats = marker == "{r}" ? model.num_refiner_layers : model.num_layers;
    for (std::int64_t number = 0; number < repeats; ++number)
      for (std::size_t rule = i; rule < end; ++rule)
        append(out, rules[rule], model, layout, marker, number);
    i = end;
  }
  return out;
}

std::string module_of(std::string_view internal_name) { return replaced(internal_name, ".weight", ""); }

std::string probe_of(std::string_view internal_name) {
  return "weights." + replaced(replaced(internal_name, ".weight", ""), ".linear", "");
}

} // namespace h3diff::cases
