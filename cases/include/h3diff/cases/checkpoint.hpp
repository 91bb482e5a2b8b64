// A checkpoint in any of the three layouts, read in one internal form.
//
// Internal names are the raw checkpoint's module paths ("blocks.3.attn.qkv_proj.weight"). Internal row order:
// qkv flat [q; k; v], fc1 [gate; value]. docs/checkpoints.md has the table of all three layouts.
#pragma once
#include "h3diff/cases/safetensors.hpp"
#include "h3diff/probes/graph.hpp"
#include "h3diff/probes/result.hpp"
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace h3diff::cases {

enum class Layout { raw, comfy, diffusers };
std::string_view name(Layout);
std::optional<Layout> parse_layout(std::string_view);

struct WeightInfo {
  std::string name;   // internal
  std::string module; // "blocks.3.attn.qkv_proj"; with .weight stripped, .linear kept
  probes::DType dtype;
  std::vector<std::int64_t> shape; // internal
  std::string probe;               // "weights.blocks.3.attn.qkv_proj"
};

class Checkpoint {
public:
  struct Options {
    std::optional<Layout> layout; // needed where nothing tells raw from Comfy
    // What somebody states about the model; tensors and config.json must agree with it. It also tells what they
    // leave open: without a config.json, a diffusers checkpoint says nothing about the rotary width.
    std::optional<probes::ModelShape> shape;
  };
  // PATH: a safetensors file, or a folder with one file, shards with an index, or shards alone.
  // usage error asking for --layout where raw and Comfy cannot be told apart; bad_input for a malformed file, a
  // shard that the index names and the folder lacks (or the reverse), a tensor that is missing, left over or of
  // a shape that config.json or the other tensors contradict.
  static Result<Checkpoint> open(const std::string& path, const Options&);

  Layout layout() const { return layout_; }
  // From config.json, else read off the tensors. What no tensor tells (theta, eps, patch, and in the diffusers
  // layout the rotary width) is then the published model's: patch 1 x 2 x 2, 3/4 of a head rotated.
  const probes::ModelShape& shape() const { return shape_; }
  bool shape_from_config() const { return shape_from_config_; }
  const std::vector<WeightInfo>& weights() const { return weights_; } // in the graph's weight order
  const WeightInfo* find(std::string_view internal_name) const;
  // `rope.inv_freq` is among the weights where the files hold it (raw, Comfy).
  // Copies the tensor in internal row order; out.size() must be the tensor's size in bytes.
  Result<void> read(std::string_view internal_name, std::span<std::byte> out) const;
  // SHA-256 (hex) of the sorted lines "NAME DTYPE [d0,d1]", joined by newlines, of the tensors as the files hold
  // them; DTYPE as in the file ("BF16").
  std::string digest() const;
  std::string path() const { return path_; }

private:
  struct Piece { // bytes of a file that stand at byte `target` of the internal tensor
    std::span<const std::byte> source;
    std::size_t target = 0;
  };
  std::string path_;
  Layout layout_ = Layout::raw;
  probes::ModelShape shape_;
  bool shape_from_config_ = false;
  std::vector<WeightInfo> weights_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<SafetensorsFile> files_;
};

} // namespace h3diff::cases
