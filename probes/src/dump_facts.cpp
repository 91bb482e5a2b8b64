#include "h3diff/probes/dump.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <fstream>
#include <utility>

namespace h3diff::probes {
namespace {

constexpr std::pair<const char*, std::int64_t ModelShape::*> shape_fields[] = {
    {"num_layers", &ModelShape::num_layers},
    {"num_refiner_layers", &ModelShape::num_refiner_layers},
    {"hidden_size", &ModelShape::hidden_size},
    {"num_attention_heads", &ModelShape::num_attention_heads},
    {"attention_head_dim", &ModelShape::attention_head_dim},
    {"ffn_dim", &ModelShape::ffn_dim},
    {"in_channels", &ModelShape::in_channels},
    {"audio_in_channels", &ModelShape::audio_in_channels},
    {"text_dim", &ModelShape::text_dim},
    {"freq_dim", &ModelShape::freq_dim},
    {"time_embed_hidden_dim", &ModelShape::time_embed_hidden_dim},
    {"time_embed_dim", &ModelShape::time_embed_dim},
    {"rope_freq_dim", &ModelShape::rope_freq_dim},
};

// Far above any model and far below what overflows when two or three are multiplied.
constexpr std::int64_t max_size = std::int64_t{1} << 20;

} // namespace

RunFacts shape_facts(const ModelShape& shape) {
  RunFacts facts;
  for (const auto& [name, field] : shape_fields)
    facts[name] = shape.*field;
  facts["video_patch_dim"] = shape.video_patch_dim();
  facts["adaln_form"] = std::string(shape.curve() ? "curve" : "mlp");
  if (shape.curve())
    facts["curve_grid"] = shape.curve_grid;
  return facts;
}

Result<ModelShape> shape_from_facts(const RunFacts& facts) {
  const auto size = [&](const std::string& name) -> Result<std::int64_t> {
    const auto found = facts.find(name);
    if (found == facts.end())
      return bad_input(fmt::format("the run fact {} is missing", name));
    const auto* value = std::get_if<std::int64_t>(&found->second);
    if (value == nullptr || *value < 0 || *value > max_size)
      return bad_input(fmt::format("the run fact {} is not a size from 0 to {}", name, max_size));
    return *value;
  };
  const auto form_of = facts.find("adaln_form");
  const auto* form = form_of == facts.end() ? nullptr : std::get_if<std::string>(&form_of->second);
  if (form == nullptr)
    return bad_input("the run fact adaln_form is missing");
  if (*form != "mlp" && *form != "curve")
    return bad_input(fmt::format("the run fact adaln_form is {}, neither mlp nor curve", printable(*form)));
  const bool curve = *form == "curve";

  ModelShape shape;
  for (const auto& [name, field] : shape_fields) {
    // A curve model has no time embedder whose widths could be told.
    const bool of_embedder = field == &ModelShape::freq_dim || field == &ModelShape::time_embed_hidden_dim;
    if (curve && of_embedder && !facts.contains(name))
      continue;
    const auto value = size(name);
    if (!value)
      return value.error();
    shape.*field = *value;
  }
  if (curve) {
    const auto grid = size("curve_grid");
    if (!grid)
      return grid.error();
    if (*grid == 0)
      return bad_input("the run fact curve_grid is 0 for adaln_form curve");
    shape.curve_grid = *grid;
  }
  // Only the patch's volume is a fact; where it is not the usual one, it is told as one axis.
  const auto patch = size("video_patch_dim");
  if (!patch)
    return patch.error();
  if (*patch != shape.video_patch_dim()) {
    if (shape.in_channels == 0 || *patch % shape.in_channels != 0)
      return bad_input(fmt::format("the run fact video_patch_dim, {}, is no multiple of in_channels, {}", *patch,
                                   shape.in_channels));
    shape.patch_t = 1;
    shape.patch_h = 1;
    shape.patch_w = *patch / shape.in_channels;
  }
  return shape;
}

bool is_hdf5(const std::string& path) {
  constexpr std::array<char, 8> signature = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
  std::ifstream file(path, std::ios::binary);
  // It may stand behind a user block of 512 bytes times a power of two.
  for (std::streamoff at = 0; at <= (std::streamoff{1} << 30); at = at == 0 ? 512 : at * 2) {
    std::array<char, 8> bytes{};
    if (!file.seekg(at) || !file.read(bytes.data(), bytes.size()))
      return false;
    if (bytes == signature)
      return true;
  }
  return false;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const std::string piece =
        byte >= 0x20 && byte < 0x7F ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned>(byte));
    if (out.size() + piece.size() > limit)
      return out + "...";
    out += piece;
  }
  return out;
}

} // namespace h3diff::probes
