// The parameters of one model, in memory of their own (64-byte aligned, as torch allocates), in the dtypes that
// the profile asks for and in the shapes that the forward multiplies with.
#pragma once
#include "h3diff/probes/graph.hpp"
#include "probe_sink.hpp"
#include "weight_source.hpp"
#include "zero_columns.hpp"
#include <vector>

namespace h3diff::harness {

struct LinearWeights {
  at::Tensor weight, bias; // bias undefined where there is none
};
struct AttentionWeights {
  std::vector<at::Tensor> qkv; // q, k and v, or one of [q; k; v]
  at::Tensor q_norm, k_norm, out_proj;
};
struct MlpWeights {
  at::Tensor fc1, fc2; // fc1's rows as LoadOptions say
};
struct TrunkWeights {
  at::Tensor norm1;
  AttentionWeights attention;
  at::Tensor norm2;
  MlpWeights mlp;
};
struct BlockWeights {
  LinearWeights adaln;
  TrunkWeights trunk;
};

struct Weights {
  LinearWeights video_patch_proj, audio_patch_proj, condition_proj;
  std::vector<TrunkWeights> refiner;
  at::Tensor refiner_final_norm;
  at::Tensor rope_inv_freq;
  LinearWeights time_proj_in, time_proj_out; // time-embedder form
  at::Tensor adaln_t_table;                  // curve form
  std::vector<BlockWeights> blocks;
  LinearWeights final_adaln;
  at::Tensor final_norm;
  LinearWeights video_out, audio_out;
};

struct LoadOptions {
  probes::DType compute_dtype = probes::DType::float32;
  probes::DType island_dtype = probes::DType::float32;
  bool flat_qkv = false;    // op attn_qkv
  bool gate_first = false;  // op fc1
  at::Tensor rope_inv_freq; // computed by the rope op
  at::Device device = at::kCPU;
  ZeroColumns zero_columns;
};

// Loads, casts as diffusers' from_pretrained(torch_dtype=...) does, and shows every weight to `sink` (may be null)
// in canonical form, in the graph's order. bad_input: a weight is missing or its dtype is not a float.
Result<Weights> load_weights(const WeightSource&, const probes::ModelShape&, const LoadOptions&, ProbeSink* sink);

} // namespace h3diff::harness
