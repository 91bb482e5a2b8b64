#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/philox.hpp"
#include "layout_table.hpp"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

namespace h3diff::cases {

using probes::DType;

namespace {

// Scales that keep a synthetic network where a trained one is: norm weights around 1, modulation scales around
// 0.2, gates around 0.5, a residual stream that grows by a few times over all blocks, a velocity with an rms of
// about 1.4. docs/cases.md lists them.
struct Recipe {
  float mean = 0, scale = 0;
};

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

Recipe recipe_of(const CaseSpec& spec, const SyntheticWeight& weight, std::int64_t row) {
  const std::string_view name = weight.name;
  if (name.ends_with("adaln_proj.linear.bias")) {
    // Order of the vectors: shift, scale, gate (twice in a block; the final layer has no gate).
    const std::int64_t vectors = name.starts_with("final_layer.") ? 2 : 6;
    switch ((row / spec.shape.hidden_size) % vectors % 3) {
    case 0: return {0, 0.1f};
    case 1: return {0, 0.2f};
    default: return {0.5f, 0.1f};
    }
  }
  if (ends_with_any(name, {"norm1.weight", "norm2.weight", "q_norm.weight", "k_norm.weight", "final_norm.weight",
                           "final_layer.norm.weight"}))
    return {1, 0.2f};
  if (name.ends_with(".bias"))
    return {0, 0.1f};
  double gain = 1; // of a linear layer: output std over input std
  if (name.ends_with("adaln_proj.linear.weight"))
    gain = spec.shape.curve() ? 0.1 : 0.2;
  if (name.ends_with("time_embedder.proj_in.weight"))
    gain = 1.4; // a sinusoid has an rms of 0.7
  if (name.ends_with("time_embedder.proj_out.weight"))
    gain = 1.6; // after SiLU
  if (name.ends_with("mlp.fc2.weight"))
    gain = 2; // after SiLU times value
  return {0, static_cast<float>(gain / std::sqrt(static_cast<double>(weight.shape[1])))};
}

// The heads read back what the patch projections wrote, negated, beside a part of their own: at sigma = 1 a trained
// model's velocity has a cosine of about -0.72 with its input and an rms of about 1.4.
struct Head {
  std::string_view projection;
  float echo = 0; // of the projection's transpose
  float own = 0;
};

bool is_head(std::string_view name) {
  return name == "final_layer.video_out.weight" || name == "final_layer.audio_out.weight";
}

Head head_of(const CaseSpec& spec, const SyntheticWeight& weight) {
  // The projections' columns are nearly orthogonal, of squared length hidden / width; the final norm divides by
  // the residual stream's mean square, which grows with depth.
  const auto width = static_cast<double>(weight.shape[0]), hidden = static_cast<double>(weight.shape[1]);
  const double mean_square = 1 + 0.5 * static_cast<double>(spec.shape.num_layers);
  // Variance that the rest of the stream brings along through the same columns, per unit of echo: small where the
  // model is much wider than a row. It must leave room within 1.9.
  const double stray = width / hidden * (1 + 0.8 * mean_square);
  const double share = std::min(1.0, std::sqrt(1.8 / (1 + stray)));
  const double own = std::sqrt(std::max(0.1, 1.9 - share * share * (1 + stray)));
  const double projection_std = 1 / std::sqrt(width);
  return {weight.name == "final_layer.video_out.weight" ? "video_patch_proj.weight" : "audio_patch_proj.weight",
          static_cast<float>(-share * std::sqrt(mean_square) * width / hidden * projection_std),
          static_cast<float>(own / std::sqrt(hidden))};
}

// Layers that write the residual stream: where trained models have their outlier channels from.
bool writes_residual(std::string_view name) {
  return name.starts_with("video_patch_proj.") || name.starts_with("audio_patch_proj.") ||
         name.starts_with("condition_proj.") || ends_with_any(name, {"attn.out_proj.weight", "mlp.fc2.weight"});
}

std::set<std::int64_t> outlier_channels(const CaseSpec& spec) {
  std::set<std::int64_t> channels;
  const TensorStream stream(spec.seed, "outlier_channels");
  for (std::uint64_t i = 0; static_cast<std::int64_t>(channels.size()) < spec.weights.outlier_channels; ++i)
    channels.insert(static_cast<std::int64_t>(static_cast<double>(stream.uniform(i)) *
                                              static_cast<double>(spec.shape.hidden_size)));
  return channels;
}

std::uint16_t to_bfloat16(float value) { // round to nearest even; values here are finite
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

void store(DType dtype, void* out, std::int64_t at, std::span<const float> values) {
  if (dtype == DType::float32) {
    std::memcpy(static_cast<float*>(out) + at, values.data(), values.size_bytes());
    return;
  }
  auto* narrow = static_cast<std::uint16_t*>(out) + at;
  for (std::size_t i = 0; i < values.size(); ++i)
    narrow[i] = to_bfloat16(values[i]);
}

// Correctly rounded at each of diffusers' three float32 operations; bitwise torch's for up to 18 frequencies.
float inverse_frequency(const CaseSpec& spec, std::int64_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * spec.shape.rope_freq_dim);
  return 1.0f / static_cast<float>(std::pow(spec.shape.rope_theta, static_cast<double>(exponent)));
}

// A curve through 17 random knots per column: neighbouring rows of a real table are close.
float table_value(const CaseSpec& spec, const TensorStream& stream, std::int64_t row, std::int64_t column) {
  constexpr std::int64_t intervals = 16;
  const std::int64_t last = spec.shape.curve_grid - 1, at = row * intervals;
  const std::int64_t knot = std::min(at / last, intervals - 1);
  const float weight = static_cast<float>(at - knot * last) / static_cast<float>(last);
  const auto value = [&](std::int64_t k) {
    return stream.normal(static_cast<std::uint64_t>(column * (intervals + 1) + k));
  };
  const float step = value(knot + 1) - value(knot);
  return value(knot) + step * weight;
}

} // namespace

std::vector<SyntheticWeight> weight_list(const CaseSpec& spec) {
  std::vector<SyntheticWeight> out;
  for (LayoutWeight& weight : layout_weights(spec.shape, Layout::raw)) {
    const bool wide = weight.island || spec.weights.dtype == "float32";
    out.push_back({std::move(weight.name), std::move(weight.shape), wide ? DType::float32 : DType::bfloat16});
  }
  return out;
}

void fill_weight(const CaseSpec& spec, const SyntheticWeight& weight, std::int64_t begin, std::int64_t end, void* out) {
  const TensorStream stream(spec.seed, weight.name);
  const std::int64_t columns = weight.shape.size() > 1 ? weight.shape[1] : 1;
  const bool spread = spec.weights.outlier_channels > 0 && writes_residual(weight.name);
  const std::set<std::int64_t> outliers = spread ? outlier_channels(spec) : std::set<std::int64_t>{};
  std::optional<Head> head;
  std::optional<TensorStream> projection;
  if (is_head(weight.name)) {
    head = head_of(spec, weight);
    projection.emplace(spec.seed, head->projection);
  }
  std::array<float, 4096> buffer;
  // Row by row, or in pieces of rows longer than the buffer: a recipe holds within a row. Vectors and matrices
  // whose rows share a recipe still go through here; the generator, not this loop, is the cost.
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t row = at / columns;
    const std::int64_t count = std::min({end - at, (row + 1) * columns - at, static_cast<std::int64_t>(buffer.size())});
    const std::span<float> values(buffer.data(), static_cast<std::size_t>(count));
    if (weight.name == "rope.inv_freq") {
      for (std::int64_t i = 0; i < count; ++i)
        values[static_cast<std::size_t>(i)] = inverse_frequency(spec, at + i);
    } else if (weight.name == "adaln_t_table") {
      for (std::int64_t i = 0; i < count; ++i)
        values[static_cast<std::size_t>(i)] = table_value(spec, stream, row, at + i - row * columns);
    } else {
      stream.normals(static_cast<std::uint64_t>(at), values);
      Recipe recipe = recipe_of(spec, weight, row);
      if (outliers.contains(row))
        recipe.scale *= static_cast<float>(spec.weights.outlier_scale);
      if (head)
        recipe.scale = head->own;
      for (float& value : values)
        value = recipe.mean + recipe.scale * value;
      if (head) // row of the head: column of the projection
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t transposed = (at + i - row * columns) * weight.shape[0] + row;
          values[static_cast<std::size_t>(i)] +=
              head->echo * projection->normal(static_cast<std::uint64_t>(transposed));
        }
    }
    store(weight.dtype, out, at - begin, values);
    at += count;
  }
}

} // namespace h3diff::cases
