#include "model.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>

namespace h3diff::harness {
namespace {

using at::Tensor;

constexpr std::int64_t tags = 3; // video, text, audio

// One evaluation: what every part of the forward shares.
class Forward {
public:
  Forward(const probes::ModelShape& shape, const Weights& weights, const ForwardInput& input, Dispatcher& ops,
          ProbeSink* sink)
      : shape_(shape), weights_(weights), in_(input), ops_(ops), probe_(sink) {}

  Prediction run() {
    probe_inputs();
    rope_ = ops_.rope.use().table(in_.position_ids, weights_.rope_inv_freq);
    probe_("rope.cos", rope_.cos);
    probe_("rope.sin", rope_.sin);
    Tensor x = embed();
    const Tensor t_emb = time_embedding();
    const Tensor table_row = in_.timestep_indices * tags + in_.token_tags;
    for (std::size_t n = 0; n < weights_.blocks.size(); ++n)
      x = block(x, t_emb, table_row, weights_.blocks[n], Probe(probe_, "blocks.", static_cast<std::int64_t>(n)));
    return final_layer(x, t_emb);
  }

private:
  const probes::ModelShape& shape_;
  const Weights& weights_;
  const ForwardInput& in_;
  Dispatcher& ops_;
  const Probe probe_;
  ops::RopeTable rope_;

  void probe_inputs() const {
    probe_("input.video", in_.video);
    probe_("input.audio", in_.audio);
    probe_("input.text", in_.text);
    probe_("input.timestep", in_.timestep);
    probe_("input.timestep_indices", in_.timestep_indices);
    probe_("input.token_tags", in_.token_tags);
    probe_("input.position_ids", in_.position_ids);
  }

  Tensor linear(const Tensor& x, const LinearWeights& w) { return ops_.linear(x, w.weight, w.bias); }
  Tensor linear(const Tensor& x, const Tensor& weight) { return ops_.linear(x, weight, Tensor()); }

  // Embeds the three streams, refines the text, and puts all rows into one sequence.
  Tensor embed() {
    const Tensor video = linear(in_.video, weights_.video_patch_proj);
    probe_("video_patch_proj", video);
    const Tensor audio = linear(in_.audio, weights_.audio_patch_proj);
    probe_("audio_patch_proj", audio);
    Tensor text = linear(in_.text, weights_.condition_proj);
    probe_("condition_proj", text);
    for (std::size_t n = 0; n < weights_.refiner.size(); ++n)
      text = refiner_block(text, weights_.refiner[n],
                           Probe(probe_, "token_refiner.blocks.", static_cast<std::int64_t>(n)));
    text = ops_.rms_norm(text, weights_.refiner_final_norm, shape_.final_norm_eps);
    probe_("token_refiner.final_norm", text);
    const Tensor packed = ops_.pack(text, video, audio, in_.indices, in_.position_ids.size(0));
    probe_("packed", packed);
    return packed;
  }

  Tensor refiner_block(const Tensor& x, const TrunkWeights& w, const Probe& probe) {
    const Tensor norm1 = ops_.rms_norm(x, w.norm1, shape_.norm_eps);
    probe("norm1", norm1);
    const Tensor attended = ops_.residual.use().plain(x, attention(norm1, w.attention, nullptr, probe));
    probe("residual_msa", attended);
    const Tensor norm2 = ops_.rms_norm(attended, w.norm2, shape_.norm_eps);
    probe("norm2", norm2);
    const Tensor out = ops_.residual.use().plain(attended, mlp(norm2, w.mlp, probe));
    probe("out", out);
    return out;
  }

  Tensor time_embedding() {
    Tensor t_emb;
    if (shape_.curve()) {
      t_emb = ops_.adaln_curve.use().t_emb(in_.timestep, weights_.adaln_t_table);
    } else {
      const Tensor sinusoid = ops_.time_embed(in_.timestep, shape_.freq_dim);
      probe_("time_embedder.sinusoid", sinusoid);
      const Tensor hidden = linear(sinusoid, weights_.time_proj_in);
      probe_("time_embedder.proj_in", hidden);
      const Tensor act = ops_.silu(hidden);
      probe_("time_embedder.act", act);
      t_emb = linear(act, weights_.time_proj_out);
    }
    probe_("adaln.t_emb", t_emb);
    return t_emb;
  }

  std::vector<Tensor> adaln(const Tensor& t_emb, const LinearWeights& w, std::int64_t parts, const Probe& probe,
                            const char* input_name) {
    const ops::Adaln& op = shape_.curve() ? ops_.adaln_curve.use().adaln : ops_.adaln.use();
    const Tensor input = op.input(t_emb, w.weight.scalar_type());
    probe(input_name, input);
    return op.project(input, w.weight, w.bias, shape_.hidden_size, parts);
  }

  Tensor block(const Tensor& x, const Tensor& t_emb, const Tensor& table_row, const BlockWeights& w,
               const Probe& probe) {
    static constexpr const char* names[] = {"adaln.shift_msa", "adaln.scale_msa", "adaln.gate_msa",
                                            "adaln.shift_mlp", "adaln.scale_mlp", "adaln.gate_mlp"};
    const std::vector<Tensor> vectors = adaln(t_emb, w.adaln, 6, probe, "adaln.input");
    for (std::size_t i = 0; i < vectors.size(); ++i)
      probe(names[i], vectors[i]);
    const Tensor norm1 = ops_.rms_norm(x, w.trunk.norm1, shape_.norm_eps);
    probe("norm1", norm1);
    const Tensor mod_msa = ops_.modulation(norm1, vectors[0], vectors[1], table_row);
    probe("mod_msa", mod_msa);
    const Tensor attention_out = attention(mod_msa, w.trunk.attention, &rope_, probe);
    const Tensor attended = ops_.residual.use().gated(x, attention_out, vectors[2], table_row);
    probe("residual_msa", attended);
    const Tensor norm2 = ops_.rms_norm(attended, w.trunk.norm2, shape_.norm_eps);
    probe("norm2", norm2);
    const Tensor mod_mlp = ops_.modulation(norm2, vectors[3], vectors[4], table_row);
    probe("mod_mlp", mod_mlp);
    const Tensor mlp_out = mlp(mod_mlp, w.trunk.mlp, probe);
    const Tensor out = ops_.residual.use().gated(attended, mlp_out, vectors[5], table_row);
    probe("out", out);
    return out;
  }

  std::vector<Tensor> project_qkv(const Tensor& x, const AttentionWeights& w) {
    if (ops_.attn_qkv.use().flat)
      return linear(x, w.qkv[0]).chunk(3, -1);
    std::vector<Tensor> qkv;
    for (const Tensor& weight : w.qkv)
      qkv.push_back(linear(x, weight));
    return qkv;
  }

  // Without `rope` the heads are not rotated.
  Tensor attention(const Tensor& x, const AttentionWeights& w, const ops::RopeTable* rope, const Probe& probe) {
    const auto heads = [&](const Tensor& flat) {
      return flat.unflatten(-1, {shape_.num_attention_heads, shape_.attention_head_dim});
    };
    const std::vector<Tensor> qkv = project_qkv(x, w);
    probe("attn.q", qkv[0]);
    probe("attn.k", qkv[1]);
    probe("attn.v", qkv[2]);
    Tensor q = ops_.rms_norm(heads(qkv[0]), w.q_norm, shape_.qk_norm_eps);
    Tensor k = ops_.rms_norm(heads(qkv[1]), w.k_norm, shape_.qk_norm_eps);
    probe("attn.q_norm", q);
    probe("attn.k_norm", k);
    if (rope != nullptr) {
      q = ops_.rope.use().rotate(q, *rope);
      k = ops_.rope.use().rotate(k, *rope);
      probe("attn.q_rope", q);
      probe("attn.k_rope", k);
    }
    const Tensor mixed = ops_.attention(q, k, heads(qkv[2]));
    probe("attn.sdpa", mixed);
    const Tensor out = linear(mixed.flatten(2, 3), w.out_proj);
    probe("attn.out_proj", out);
    return out;
  }

  Tensor mlp(const Tensor& x, const MlpWeights& w, const Probe& probe) {
    const bool gate_first = ops_.fc1.use().gate_first;
    const Tensor both = linear(x, w.fc1);
    probe("mlp.fc1", both, gate_first ? Halves::as_is : Halves::swapped);
    const std::vector<Tensor> halves = both.chunk(2, -1);
    const Tensor act = gate_first ? ops_.swiglu(halves[1], halves[0]) : ops_.swiglu(halves[0], halves[1]);
    probe("mlp.act", act);
    const Tensor out = linear(act, w.fc2);
    probe("mlp.fc2", out);
    return out;
  }

  // Norm and both heads run over the whole sequence; then each head's rows are picked.
  Prediction final_layer(const Tensor& x, const Tensor& t_emb) {
    const std::vector<Tensor> vectors = adaln(t_emb, weights_.final_adaln, 2, probe_, "final.adaln.input");
    probe_("final.adaln.shift", vectors[0]);
    probe_("final.adaln.scale", vectors[1]);
    const Tensor norm = ops_.rms_norm(x, weights_.final_norm, shape_.final_norm_eps);
    probe_("final.norm", norm);
    const Tensor mod = ops_.modulation(norm, vectors[0], vectors[1], in_.timestep_indices);
    probe_("final.mod", mod);
    Prediction prediction;
    prediction.video = at::index_select(linear(mod, weights_.video_out), 1, in_.indices.video);
    prediction.audio = at::index_select(linear(mod, weights_.audio_out), 1, in_.indices.audio);
    probe_("pred.video", prediction.video);
    probe_("pred.audio", prediction.audio);
    return prediction;
  }
};

} // namespace

Prediction Model::forward(const ForwardInput& input, Dispatcher& ops, ProbeSink* sink) const {
  return Forward(shape_, weights_, input, ops, sink).run();
}

} // namespace h3diff::harness
