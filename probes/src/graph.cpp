#include "h3diff/probes/graph.hpp"

#include <utility>

namespace h3diff::probes {
namespace {

using Names = std::vector<std::string>;

std::string weight_name(const std::string& module) { return "weights." + module; }

// Lays the list down from front to back; docs/probes.md is the same list in the same order.
class Builder {
public:
  explicit Builder(const ModelShape& shape) : m_(shape) {
    add_weights();
    add_step();
  }
  std::vector<ProbeInfo> take() { return std::move(probes_); }

private:
  const ModelShape& m_;
  std::vector<ProbeInfo> probes_;
  int block_ = -1;

  ProbeInfo& weight(const std::string& module, std::int64_t rows, std::int64_t cols, std::string meaning) {
    ProbeInfo& info = probes_.emplace_back();
    info.name = weight_name(module);
    info.op = "weight";
    info.rows = rows;
    info.cols = cols;
    info.meaning = std::move(meaning);
    info.block = block_;
    info.weight = true;
    return info;
  }

  void weight_and_bias(const std::string& module, std::int64_t rows, std::int64_t cols, const std::string& meaning,
                       bool per_column = false) {
    weight(module, rows, cols, meaning).per_column = per_column;
    weight(module + ".bias", 1, rows, "its bias");
  }

  ProbeInfo& probe(const std::string& name, const char* op, RowSpace space, std::int64_t cols, const Names& inputs,
                   std::string meaning) {
    ProbeInfo& info = probes_.emplace_back();
    info.name = name;
    info.op = op;
    info.space = space;
    info.cols = cols;
    for (const std::string& input : inputs)
      info.inputs.push_back({input});
    info.meaning = std::move(meaning);
    info.block = block_;
    return info;
  }

  void trunk_weights(const std::string& block) {
    weight(block + ".norm1", 1, m_.hidden_size, "RMS norm before attention");
    weight(block + ".attn.qkv_proj", 3 * m_.inner_dim(), m_.hidden_size, "query, key, value projection, [q; k; v]");
    weight(block + ".attn.q_norm", 1, m_.attention_head_dim, "RMS norm of a query head");
    weight(block + ".attn.k_norm", 1, m_.attention_head_dim, "RMS norm of a key head");
    weight(block + ".attn.out_proj", m_.hidden_size, m_.inner_dim(), "attention's output projection");
    weight(block + ".norm2", 1, m_.hidden_size, "RMS norm before the MLP");
    weight(block + ".mlp.fc1", 2 * m_.ffn_dim, m_.hidden_size, "MLP up, [gate; value]");
    weight(block + ".mlp.fc2", m_.hidden_size, m_.ffn_dim, "MLP down");
  }

  void add_weights() {
    const std::int64_t H = m_.hidden_size, E = m_.time_embed_dim;
    weight_and_bias("video_patch_proj", H, m_.video_patch_dim(), "video patch to hidden");
    weight_and_bias("audio_patch_proj", H, m_.audio_in_channels, "audio latent to hidden");
    weight_and_bias("condition_proj", H, m_.text_dim, "text to hidden");
    for (std::int64_t n = 0; n < m_.num_refiner_layers; ++n)
      trunk_weights("token_refiner.blocks." + std::to_string(n));
    weight("token_refiner.final_norm", 1, H, "RMS norm after the refiner");
    weight("rope.inv_freq", 1, m_.rope_freq_dim, "rotary frequencies");
    if (m_.curve()) {
      weight("adaln_t_table", m_.curve_grid, E, "time embedding as a table over t").per_column = true;
    } else {
      weight_and_bias("time_embedder.proj_in", m_.time_embed_hidden_dim, m_.freq_dim, "sinusoid to time hidden");
      weight_and_bias("time_embedder.proj_out", E, m_.time_embed_hidden_dim, "time hidden to time embedding");
    }
    for (std::int64_t n = 0; n < m_.num_layers; ++n) {
      block_ = static_cast<int>(n);
      const std::string block = "blocks." + std::to_string(n);
      weight_and_bias(block + ".adaln_proj", 18 * H, E, "AdaLN projection, 3 tags x 6 vectors", true);
      trunk_weights(block);
    }
    block_ = -1;
    weight_and_bias("final_layer.adaln_proj", 2 * H, E, "final AdaLN projection, [shift; scale]", true);
    weight("final_layer.norm", 1, H, "final RMS norm");
    weight_and_bias("final_layer.video_out", m_.video_patch_dim(), H, "video head");
    weight_and_bias("final_layer.audio_out", m_.audio_in_channels, H, "audio head");
  }

  void add_step() {
    const std::int64_t H = m_.hidden_size;
    add_inputs();
    probe("rope.cos", "rope", RowSpace::packed, m_.rotary_dim(), {"input.position_ids", "weights.rope.inv_freq"},
          "cosine of the rotary angles");
    probe("rope.sin", "rope", RowSpace::packed, m_.rotary_dim(), {"input.position_ids", "weights.rope.inv_freq"},
          "sine of the rotary angles");
    linear("video_patch_proj", "video_patch_proj", RowSpace::video, H, "input.video", true, "video rows embedded");
    linear("audio_patch_proj", "audio_patch_proj", RowSpace::audio, H, "input.audio", true, "audio rows embedded");
    linear("condition_proj", "condition_proj", RowSpace::text, H, "input.text", true, "text rows embedded");
    std::string stream = "condition_proj";
    for (std::int64_t n = 0; n < m_.num_refiner_layers; ++n)
      stream = add_refiner_block("token_refiner.blocks." + std::to_string(n), stream);
    norm("token_refiner.final_norm", RowSpace::text, H, stream, "token_refiner.final_norm", "refined text");
    probe("packed", "pack", RowSpace::packed, H, {"token_refiner.final_norm", "video_patch_proj", "audio_patch_proj"},
          "the packed sequence");
    add_time_embedding();
    stream = "packed";
    for (std::int64_t n = 0; n < m_.num_layers; ++n) {
      block_ = static_cast<int>(n);
      stream = add_block("blocks." + std::to_string(n), stream);
    }
    block_ = -1;
    add_final(stream);
  }

  void add_inputs() {
    probe("input.video", "input", RowSpace::video, m_.video_patch_dim(), {}, "video latent rows, patchified").inputs = {
        {"latent.video", false, true}};
    probe("input.audio", "input", RowSpace::audio, m_.audio_in_channels, {}, "audio latent rows").inputs = {
        {"latent.audio", false, true}};
    probe("input.text", "input", RowSpace::text, m_.text_dim, {}, "text conditioning");
    probe("input.timestep", "input", RowSpace::timesteps, 1, {}, "distinct timesteps, ascending");
    probe("input.timestep_indices", "input", RowSpace::packed, 1, {}, "which timestep a row has");
    probe("input.token_tags", "input", RowSpace::packed, 1, {}, "modality of a row: 0 video, 1 text, 2 audio");
    probe("input.position_ids", "input", RowSpace::packed, 3, {}, "t, h, w of a row");
  }

  void linear(const std::string& name, const std::string& module, RowSpace space, std::int64_t cols,
              const std::string& input, bool bias, std::string meaning) {
    ProbeInfo& info = probe(name, "linear", space, cols, {input, weight_name(module)}, std::move(meaning));
    if (bias)
      info.inputs.push_back({weight_name(module) + ".bias"});
  }

  void norm(const std::string& name, RowSpace space, std::int64_t cols, const std::string& input,
            const std::string& module, std::string meaning) {
    probe(name, "rms_norm", space, cols, {input, weight_name(module)}, std::move(meaning));
  }

  // Query, key and value up to the per-head norms; `input` is what the projection reads.
  void add_qkv(const std::string& block, RowSpace space, const std::string& input) {
    const std::int64_t inner = m_.inner_dim();
    const std::string attn = block + ".attn.";
    linear(attn + "q", attn + "qkv_proj", space, inner, input, false, "query");
    linear(attn + "k", attn + "qkv_proj", space, inner, input, false, "key");
    linear(attn + "v", attn + "qkv_proj", space, inner, input, false, "value");
    norm(attn + "q_norm", space, inner, attn + "q", attn + "q_norm", "query after its norm");
    norm(attn + "k_norm", space, inner, attn + "k", attn + "k_norm", "key after its norm");
  }

  void add_attention(const std::string& block, RowSpace space, const std::string& query, const std::string& key) {
    const std::string attn = block + ".attn.";
    ProbeInfo& info = probe(attn + "sdpa", "attention", space, m_.inner_dim(), {query, key, attn + "v"},
                            "attention's result, heads flattened");
    for (ProbeInput& input : info.inputs)
      input.all_segments = true;
    linear(attn + "out_proj", attn + "out_proj", space, m_.hidden_size, attn + "sdpa", false,
           "attention projected back");
  }

  void add_mlp(const std::string& block, RowSpace space, const std::string& input) {
    linear(block + ".mlp.fc1", block + ".mlp.fc1", space, 2 * m_.ffn_dim, input, false, "MLP up, [gate; value]");
    probe(block + ".mlp.act", "swiglu", space, m_.ffn_dim, {block + ".mlp.fc1"}, "silu(gate) * value");
    linear(block + ".mlp.fc2", block + ".mlp.fc2", space, m_.hidden_size, block + ".mlp.act", false, "MLP down");
  }

  std::string add_refiner_block(const std::string& block, const std::string& stream) {
    const std::int64_t H = m_.hidden_size;
    const RowSpace space = RowSpace::text;
    norm(block + ".norm1", space, H, stream, block + ".norm1", "norm before attention");
    add_qkv(block, space, block + ".norm1");
    add_attention(block, space, block + ".attn.q_norm", block + ".attn.k_norm");
    probe(block + ".residual_msa", "residual", space, H, {stream, block + ".attn.out_proj"}, "stream after attention");
    norm(block + ".norm2", space, H, block + ".residual_msa", block + ".norm2", "norm before the MLP");
    add_mlp(block, space, block + ".norm2");
    probe(block + ".out", "residual", space, H, {block + ".residual_msa", block + ".mlp.fc2"}, "the block's output");
    return block + ".out";
  }

  void add_time_embedding() {
    const RowSpace space = RowSpace::timesteps;
    if (m_.curve()) {
      probe("adaln.t_emb", "adaln_curve", space, m_.time_embed_dim, {"input.timestep", "weights.adaln_t_table"},
            "time embedding, interpolated from the table");
      return;
    }
    probe("time_embedder.sinusoid", "time_embed", space, m_.freq_dim, {"input.timestep"}, "sinusoid of the timesteps");
    linear("time_embedder.proj_in", "time_embedder.proj_in", space, m_.time_embed_hidden_dim, "time_embedder.sinusoid",
           true, "time embedder, first layer");
    probe("time_embedder.act", "silu", space, m_.time_embed_hidden_dim, {"time_embedder.proj_in"},
          "time embedder, after SiLU");
    linear("adaln.t_emb", "time_embedder.proj_out", space, m_.time_embed_dim, "time_embedder.act", true,
           "time embedding");
  }

  std::string add_block(const std::string& block, const std::string& stream) {
    const std::int64_t H = m_.hidden_size;
    const RowSpace space = RowSpace::packed;
    const std::string adaln = block + ".adaln.", attn = block + ".attn.";
    probe(adaln + "input", "adaln", RowSpace::timesteps, m_.time_embed_dim, {"adaln.t_emb"},
          "what enters the AdaLN projection");
    for (const char* vector : {"shift_msa", "scale_msa", "gate_msa", "shift_mlp", "scale_mlp", "gate_mlp"})
      probe(adaln + vector, "adaln", RowSpace::modulation, H,
            {adaln + "input", weight_name(block) + ".adaln_proj", weight_name(block) + ".adaln_proj.bias"},
            std::string("modulation ") + vector);
    norm(block + ".norm1", space, H, stream, block + ".norm1", "norm before attention");
    probe(block + ".mod_msa", "modulation", space, H,
          {block + ".norm1", adaln + "shift_msa", adaln + "scale_msa", "input.token_tags", "input.timestep_indices"},
          "norm1 * (1 + scale) + shift");
    add_qkv(block, space, block + ".mod_msa");
    probe(attn + "q_rope", "rope", space, m_.inner_dim(), {attn + "q_norm", "rope.cos", "rope.sin"},
          "query after the rotary");
    probe(attn + "k_rope", "rope", space, m_.inner_dim(), {attn + "k_norm", "rope.cos", "rope.sin"},
          "key after the rotary");
    add_attention(block, space, attn + "q_rope", attn + "k_rope");
    probe(block + ".residual_msa", "residual", space, H, {stream, attn + "out_proj", adaln + "gate_msa"},
          "stream after attention");
    norm(block + ".norm2", space, H, block + ".residual_msa", block + ".norm2", "norm before the MLP");
    probe(block + ".mod_mlp", "modulation", space, H,
          {block + ".norm2", adaln + "shift_mlp", adaln + "scale_mlp", "input.token_tags", "input.timestep_indices"},
          "norm2 * (1 + scale) + shift");
    add_mlp(block, space, block + ".mod_mlp");
    probe(block + ".out", "residual", space, H, {block + ".residual_msa", block + ".mlp.fc2", adaln + "gate_mlp"},
          "the block's output");
    return block + ".out";
  }

  void add_final(const std::string& stream) {
    const std::int64_t H = m_.hidden_size;
    const std::string projection = "weights.final_layer.adaln_proj";
    probe("final.adaln.input", "adaln", RowSpace::timesteps, m_.time_embed_dim, {"adaln.t_emb"},
          "what enters the final AdaLN projection");
    for (const char* vector : {"shift", "scale"})
      probe(std::string("final.adaln.") + vector, "adaln", RowSpace::timesteps, H,
            {"final.adaln.input", projection, projection + ".bias"}, std::string("final modulation ") + vector);
    norm("final.norm", RowSpace::packed, H, stream, "final_layer.norm", "final norm");
    probe("final.mod", "modulation", RowSpace::packed, H, {"final.norm", "final.adaln.shift", "final.adaln.scale"},
          "norm * (1 + scale) + shift");
    linear("pred.video", "final_layer.video_out", RowSpace::video, m_.video_patch_dim(), "final.mod", true,
           "predicted video velocity, towards the data");
    linear("pred.audio", "final_layer.audio_out", RowSpace::audio, m_.audio_in_channels, "final.mod", true,
           "predicted audio velocity, towards the data");
    probe("latent.video", "euler", RowSpace::video, m_.video_patch_dim(), {"pred.video", "input.video"},
          "video rows after the step");
    probe("latent.audio", "euler", RowSpace::audio, m_.audio_in_channels, {"pred.audio", "input.audio"},
          "audio rows after the step");
  }
};

} // namespace

Graph::Graph(const ModelShape& shape) : shape_(shape), probes_(Builder(shape_).take()) {
  positions_.reserve(probes_.size());
  for (std::size_t i = 0; i < probes_.size(); ++i)
    positions_.emplace(probes_[i].name, static_cast<int>(i));
}

int Graph::position(std::string_view probe) const {
  const auto found = positions_.find(std::string(probe));
  return found == positions_.end() ? -1 : found->second;
}

const ProbeInfo* Graph::find(std::string_view probe) const {
  const int at = position(probe);
  return at < 0 ? nullptr : &probes_[static_cast<std::size_t>(at)];
}

Segment input_segment(Segment segment, RowSpace input_space) {
  const bool text = segment == Segment::text || segment == Segment::vision;
  const bool video = segment == Segment::video || segment == Segment::cond_video;
  const bool audio = segment == Segment::audio || segment == Segment::cond_audio;
  switch (input_space) {
  case RowSpace::packed: return segment;
  case RowSpace::text: return text ? segment : Segment::all;
  case RowSpace::video: return video ? segment : Segment::all;
  case RowSpace::audio: return audio ? segment : Segment::all;
  case RowSpace::modulation: // vision rows are text rows that carry the video tag
    if (video || segment == Segment::vision)
      return Segment::video;
    if (audio)
      return Segment::audio;
    return segment;
  case RowSpace::timesteps:
  case RowSpace::other: break;
  }
  return Segment::all;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  constexpr std::size_t none = std::string_view::npos;
  std::size_t p = 0, t = 0, star = none, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != none) { // let the last star swallow one more character
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*')
    ++p;
  return p == pattern.size();
}

} // namespace h3diff::probes
