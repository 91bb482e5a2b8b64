// The probes of one run: names, order, shapes and inputs. docs/probes.md is the same list in prose.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include "h3diff/probes/segments.hpp"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace h3diff::probes {

// Shape of an H3 transformer, by diffusers' names. Defaults are the published model's.
struct ModelShape {
  std::int64_t num_layers = 50, num_refiner_layers = 2;
  std::int64_t hidden_size = 5376, num_attention_heads = 56, attention_head_dim = 128, ffn_dim = 14336;
  std::int64_t in_channels = 24, audio_in_channels = 32, patch_t = 1, patch_h = 2, patch_w = 2;
  std::int64_t text_dim = 5120, freq_dim = 256, time_embed_hidden_dim = 5376, time_embed_dim = 2688;
  std::int64_t rope_freq_dim = 16;
  double rope_theta = 10000.0, norm_eps = 1e-5, qk_norm_eps = 1e-5, final_norm_eps = 1e-5;
  std::int64_t curve_grid = 0; // > 0: curve AdaLN with a table [curve_grid, time_embed_dim], no time embedder

  bool curve() const { return curve_grid > 0; }
  std::int64_t inner_dim() const { return num_attention_heads * attention_head_dim; }
  std::int64_t video_patch_dim() const { return in_channels * patch_t * patch_h * patch_w; }
  std::int64_t rotary_dim() const { return 2 * 3 * rope_freq_dim; }
  bool operator==(const ModelShape&) const = default;
};

struct ProbeInput {
  std::string probe;
  bool all_segments = false; // attention: every segment of the input matters to every row
  bool previous_step = false;
};

struct ProbeInfo {
  std::string name;
  std::string op; // "linear", "rms_norm", "rope", "attention", "adaln", "swiglu", "residual", "modulation",
                  // "input", "pack", "time_embed", "silu", "adaln_curve", "euler", "weight"
  RowSpace space = RowSpace::other;
  std::int64_t rows = 0; // of weights; 0 where the case decides
  std::int64_t cols = 0;
  std::vector<ProbeInput> inputs;
  std::string meaning; // one short line for `case show --probes`
  int block = -1;      // block number, or -1
  bool weight = false; // stands at step -1
  bool per_column = false;
};

class Graph {
public:
  explicit Graph(const ModelShape&);
  const ModelShape& shape() const { return shape_; }
  const std::vector<ProbeInfo>& probes() const { return probes_; } // weights first, then one step, in order
  const ProbeInfo* find(std::string_view probe) const;             // nullptr if there is none
  int position(std::string_view probe) const;                      // index in probes(), or -1

private:
  ModelShape shape_;
  std::vector<ProbeInfo> probes_;
  std::unordered_map<std::string, int> positions_;
};

// Which segment of an input in `input_space` feeds `segment` of a probe (docs/probes.md, last paragraph).
Segment input_segment(Segment segment, RowSpace input_space);

// Shell-style match: * any run of characters, ? one character.
bool glob_match(std::string_view pattern, std::string_view text);

} // namespace h3diff::probes
