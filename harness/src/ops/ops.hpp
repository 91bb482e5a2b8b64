// The ops of the H3 forward, one file each. Tensors keep diffusers' batch dimension: [1, rows, columns]; heads are
// [1, rows, heads, head_dim]; modulation tables are [timesteps x 3, hidden], time embeddings [timesteps, width].
#pragma once
#include "ops/implementation.hpp"
#include <ATen/core/Tensor.h>
#include <vector>

namespace h3diff::harness::ops {

using at::Tensor;

// x w^T + bias in the weight's dtype; x is cast to it first. An undefined bias is none.
using Linear = Tensor (*)(const Tensor& x, const Tensor& weight, const Tensor& bias);
std::span<const Implementation<Linear>> linear_implementations();

// Whether query, key and value are three products, as diffusers has it, or one flat product [q; k; v].
struct AttnQkv {
  bool flat;
};
std::span<const Implementation<AttnQkv>> attn_qkv_implementations();

// Order of fc1's rows, and so of its result's halves: [gate; value], or diffusers' [value; gate].
struct Fc1 {
  bool gate_first;
};
std::span<const Implementation<Fc1>> fc1_implementations();

// Over the last dimension.
using RmsNorm = Tensor (*)(const Tensor& x, const Tensor& weight, double eps);
std::span<const Implementation<RmsNorm>> rms_norm_implementations();

struct RopeTable {
  Tensor cos, sin; // [rows, rotary width], float32
};
struct Rope {
  Tensor (*inverse_frequencies)(std::int64_t per_axis, double theta); // [per_axis], float32, on the host
  RopeTable (*table)(const Tensor& position_ids, const Tensor& inverse_frequencies);
  Tensor (*rotate)(const Tensor& heads, const RopeTable&); // leading channels of each head
};
std::span<const Implementation<Rope>> rope_implementations();

// Full self-attention; q, k, v and the result are [1, rows, heads, head_dim].
using Attention = Tensor (*)(const Tensor& q, const Tensor& k, const Tensor& v);
std::span<const Implementation<Attention>> attention_implementations();

struct Adaln {
  Tensor (*input)(const Tensor& t_emb, at::ScalarType projection_dtype);
  // `parts` vectors per row, each `hidden` wide.
  std::vector<Tensor> (*project)(const Tensor& input, const Tensor& weight, const Tensor& bias, std::int64_t hidden,
                                 std::int64_t parts);
};
std::span<const Implementation<Adaln>> adaln_implementations();

// AdaLN of pruned checkpoints: the time embedding is read off a table.
struct AdalnCurve {
  Tensor (*t_emb)(const Tensor& timestep, const Tensor& table);
  Adaln adaln;
};
std::span<const Implementation<AdalnCurve>> adaln_curve_implementations();

// silu(gate) * value.
using Swiglu = Tensor (*)(const Tensor& value, const Tensor& gate);
std::span<const Implementation<Swiglu>> swiglu_implementations();

// `row` holds each packed row's row of the modulation table.
struct Residual {
  Tensor (*plain)(const Tensor& x, const Tensor& update);
  Tensor (*gated)(const Tensor& x, const Tensor& update, const Tensor& gate, const Tensor& row);
};
std::span<const Implementation<Residual>> residual_implementations();

using Modulation = Tensor (*)(const Tensor& x, const Tensor& shift, const Tensor& scale, const Tensor& row);
std::span<const Implementation<Modulation>> modulation_implementations();

// Sinusoid of `timestep` [timesteps], cosines first; float32.
using TimeEmbed = Tensor (*)(const Tensor& timestep, std::int64_t width);
std::span<const Implementation<TimeEmbed>> time_embed_implementations();

using Silu = Tensor (*)(const Tensor& x);
std::span<const Implementation<Silu>> silu_implementations();

// Rows of the three streams at their places in one sequence of `rows` rows, in the text stream's dtype.
struct PackIndices {
  Tensor text, video, audio; // int64
};
using Pack = Tensor (*)(const Tensor& text, const Tensor& video, const Tensor& audio, const PackIndices&,
                        std::int64_t rows);
std::span<const Implementation<Pack>> pack_implementations();

// One Euler step of generated rows: x0 = x + (1 - t) v, then the blend r x + (1 - r) x0, r = sigma_next / sigma.
// `sample` [rows, columns] keeps its dtype.
using Euler = Tensor (*)(const Tensor& velocity, const Tensor& sample, float timestep, float sigma, float sigma_next);
std::span<const Implementation<Euler>> euler_implementations();

} // namespace h3diff::harness::ops
