#include "h3diff/cases/checkpoint.hpp"
#include "checkpoint_config.hpp"
#include "checkpoint_files.hpp"
#include "file.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include "layout_table.hpp"
#include "sha256.hpp"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace h3diff::cases {

using probes::DType;
using probes::ModelShape;
using probes::printable;

namespace {

constexpr std::string_view comfy_prefix = "model.diffusion_model.";

using Tensors = std::map<std::string, const TensorEntry*, std::less<>>; // prefix stripped

const TensorEntry* find_tensor(const Tensors& tensors, std::string_view name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : found->second;
}

bool any_starts_with(const Tensors& tensors, std::string_view prefix) {
  const auto first = tensors.lower_bound(prefix);
  return first != tensors.end() && first->first.starts_with(prefix);
}

// Number of distinct N in "PREFIX.N.": a gap in the numbering shows up later as a missing tensor.
std::int64_t count_blocks(const Tensors& tensors, std::string_view prefix) {
  std::set<std::string> numbers;
  for (auto at = tensors.lower_bound(prefix); at != tensors.end() && at->first.starts_with(prefix); ++at) {
    const std::string_view rest = std::string_view(at->first).substr(prefix.size());
    numbers.emplace(rest.substr(0, rest.find('.')));
  }
  return static_cast<std::int64_t>(numbers.size());
}

Result<Layout> decide_layout(const std::string& path, const Tensors& tensors, bool prefixed,
                             const CheckpointFiles& files, std::optional<Layout> asked) {
  const bool diffusers = find_tensor(tensors, "proj_in.weight") || any_starts_with(tensors, "transformer_blocks.");
  const bool original = find_tensor(tensors, "video_patch_proj.weight") || any_starts_with(tensors, "blocks.");
  if (diffusers == original)
    return bad_input(fmt::format("{}: is no MiniMax-H3 transformer: its {} tensors are {}", path, tensors.size(),
                                 diffusers ? "named in two layouts" : "named in no layout that is known"));
  if (diffusers) {
    if (asked && *asked != Layout::diffusers)
      return usage_error(fmt::format("{}: is in the diffusers layout, not {}", path, name(*asked)));
    return Layout::diffusers;
  }
  if (asked && *asked == Layout::diffusers)
    return usage_error(fmt::format("{}: is in the raw or Comfy layout, not diffusers", path));
  if (asked)
    return *asked;
  if (prefixed)
    return Layout::comfy;
  if (files.config && is_raw_config(*files.config))
    return Layout::raw;
  return usage_error(fmt::format("{}: could be raw or Comfy, which order the qkv rows differently and share all names "
                                 "and shapes; say which with --layout raw or --layout comfy",
                                 path));
}

// What the tensors tell. Tensors that are missing or of a wrong rank leave the default: the comparison with the
// table names them.
ModelShape shape_of_tensors(const Tensors& tensors, Layout layout) {
  ModelShape shape;
  const bool diffusers = layout == Layout::diffusers;
  shape.num_layers = count_blocks(tensors, diffusers ? "transformer_blocks." : "blocks.");
  shape.num_refiner_layers =
      count_blocks(tensors, diffusers ? "token_refiner.refiner_blocks." : "token_refiner.blocks.");
  const bool curve = find_tensor(tensors, "adaln_t_table");
  shape.curve_grid = curve ? 1 : 0;

  // Any block will do for the widths: the comparison checks all of them.
  ModelShape one = shape;
  one.num_layers = one.num_refiner_layers = 1;
  const std::vector<LayoutWeight> weights = layout_weights(one, layout);
  const auto read = [&](std::string_view internal_name, std::size_t axis, std::int64_t& out) {
    for (const LayoutWeight& weight : weights) {
      if (weight.name != internal_name || weight.parts.empty())
        continue;
      const TensorEntry* tensor = find_tensor(tensors, weight.parts.front().name);
      if (tensor && tensor->shape.size() == weight.shape.size() && tensor->shape[axis] > 0)
        out = tensor->shape[axis] * (axis == 0 ? static_cast<std::int64_t>(weight.parts.size()) : 1);
    }
  };
  std::int64_t video = shape.video_patch_dim(), qkv = 3 * shape.inner_dim();
  read("video_patch_proj.weight", 0, shape.hidden_size);
  read("video_patch_proj.weight", 1, video);
  read("audio_patch_proj.weight", 1, shape.audio_in_channels);
  read("condition_proj.weight", 1, shape.text_dim);
  read("blocks.0.attn.q_norm.weight", 0, shape.attention_head_dim);
  read("blocks.0.attn.qkv_proj.weight", 0, qkv);
  read("blocks.0.mlp.fc2.weight", 1, shape.ffn_dim);
  if (curve) {
    read("adaln_t_table", 0, shape.curve_grid);
    read("adaln_t_table", 1, shape.time_embed_dim);
    shape.freq_dim = shape.time_embed_hidden_dim = 0; // no time embedder
  } else {
    read("time_embedder.proj_in.weight", 0, shape.time_embed_hidden_dim);
    read("time_embedder.proj_in.weight", 1, shape.freq_dim);
    read("time_embedder.proj_out.weight", 0, shape.time_embed_dim);
  }
  shape.in_channels = std::max<std::int64_t>(1, video / (shape.patch_t * shape.patch_h * shape.patch_w));
  shape.num_attention_heads = std::max<std::int64_t>(1, qkv / (3 * shape.attention_head_dim));
  shape.rope_freq_dim = std::max<std::int64_t>(1, shape.attention_head_dim / 8);
  read("rope.inv_freq", 0, shape.rope_freq_dim);
  return shape;
}

bool is_weight_dtype(const TensorEntry& tensor) {
  return tensor.dtype == DType::float32 || tensor.dtype == DType::bfloat16 || tensor.dtype == DType::float16 ||
         tensor.dtype == DType::float64;
}

} // namespace

std::string_view name(Layout layout) {
  switch (layout) {
  case Layout::raw: return "raw";
  case Layout::comfy: return "comfy";
  case Layout::diffusers: return "diffusers";
  }
  return "";
}

std::optional<Layout> parse_layout(std::string_view text) {
  for (const Layout layout : {Layout::raw, Layout::comfy, Layout::diffusers})
    if (text == name(layout))
      return layout;
  return std::nullopt;
}

Result<Checkpoint> Checkpoint::open(const std::string& path, const Options& options) {
  auto files = open_checkpoint_files(path);
  if (!files)
    return files.error();

  Tensors tensors;
  const bool prefixed = std::any_of(files->tensors.begin(), files->tensors.end(),
                                    [](const auto& tensor) { return tensor.first.starts_with(comfy_prefix); });
  for (const auto& [full_name, tensor] : files->tensors) {
    const bool has_prefix = full_name.starts_with(comfy_prefix);
    if (has_prefix != prefixed)
      return bad_input(fmt::format("{}: tensor {} lacks the prefix {} that others have", files->file_of[full_name],
                                   printable(full_name), comfy_prefix));
    tensors[has_prefix ? full_name.substr(comfy_prefix.size()) : full_name] = tensor;
  }
  for (const auto& [short_name, tensor] : tensors)
    if (short_name.ends_with(".comfy_quant") || short_name.ends_with(".weight_scale"))
      return bad_input(fmt::format("{}: tensor {} belongs to a quantised checkpoint, which this version does not read",
                                   files->file_of[tensor->name], printable(tensor->name)));

  auto layout = decide_layout(path, tensors, prefixed, *files, options.layout);
  if (!layout)
    return layout.error();

  Checkpoint out;
  out.path_ = path;
  out.layout_ = *layout;
  out.shape_ = shape_of_tensors(tensors, *layout);
  // Where the numbers that contradict the tensors came from, for the message.
  std::string authority = "the other tensors";
  if (options.shape) {
    const ModelShape& stated = *options.shape;
    ModelShape patched = out.shape_;
    if (*layout == Layout::diffusers)
      patched.rope_freq_dim = stated.rope_freq_dim;
    patched.patch_t = stated.patch_t, patched.patch_h = stated.patch_h, patched.patch_w = stated.patch_w;
    patched.in_channels = stated.in_channels;
    patched.rope_theta = stated.rope_theta, patched.norm_eps = stated.norm_eps;
    patched.qk_norm_eps = stated.qk_norm_eps, patched.final_norm_eps = stated.final_norm_eps;
    out.shape_ = patched;
    authority = "the stated model shape";
  }
  if (files->config) {
    const bool curve = out.shape_.curve();
    const std::int64_t table_width = out.shape_.time_embed_dim;
    if (auto applied = apply_config(*files->config, files->config_path, out.shape_); !applied)
      return applied.error();
    // A curve checkpoint may come with the config of the model that it was pruned from: the table decides.
    if (curve)
      out.shape_.time_embed_dim = table_width, out.shape_.freq_dim = out.shape_.time_embed_hidden_dim = 0;
    out.shape_from_config_ = true;
    authority = files->config_path;
  }
  if (out.shape_.num_layers < 1)
    return bad_input(fmt::format("{}: has no transformer blocks", path));
  if (out.shape_.rotary_dim() > out.shape_.attention_head_dim)
    return bad_input(fmt::format("{}: {} rotary channels do not fit a head of {}", path, out.shape_.rotary_dim(),
                                 out.shape_.attention_head_dim));

  std::set<const TensorEntry*> used;
  for (const LayoutWeight& weight : layout_weights(out.shape_, *layout)) {
    if (weight.parts.empty())
      continue;
    WeightInfo info{weight.name, module_of(weight.name), DType::float32, weight.shape, probe_of(weight.name)};
    std::vector<Piece> pieces;
    for (const FileTensor& part : weight.parts) {
      const TensorEntry* tensor = find_tensor(tensors, part.name);
      if (!tensor)
        return bad_input(fmt::format("{}: tensor {} is missing, which {} calls for", path, part.name, authority));
      const std::string& file = files->file_of[tensor->name];
      if (tensor->shape != part.shape)
        return bad_input(fmt::format("{}: tensor {} has the shape [{}], but {} makes it [{}]", file,
                                     printable(tensor->name), fmt::join(tensor->shape, ","), authority,
                                     fmt::join(part.shape, ",")));
      if (!is_weight_dtype(*tensor))
        return bad_input(fmt::format("{}: tensor {} is {}, which is no weight dtype that this version reads", file,
                                     printable(tensor->name), tensor->dtype_name));
      if (&part != &weight.parts.front() && *tensor->dtype != info.dtype)
        return bad_input(fmt::format("{}: tensor {} is {}, but its siblings are {}", file, printable(tensor->name),
                                     tensor->dtype_name, probes::name(info.dtype)));
      info.dtype = *tensor->dtype;
      used.insert(tensor);
      const std::size_t row_bytes = tensor->bytes.size() / static_cast<std::size_t>(part.shape.front());
      std::size_t at = 0;
      for (const RowRun& run : part.runs) {
        const std::size_t bytes = static_cast<std::size_t>(run.rows) * row_bytes;
        pieces.push_back({tensor->bytes.subspan(at, bytes), static_cast<std::size_t>(run.internal_row) * row_bytes});
        at += bytes;
      }
    }
    out.weights_.push_back(std::move(info));
    out.pieces_.push_back(std::move(pieces));
  }
  for (const auto& [short_name, tensor] : tensors)
    if (!used.contains(tensor))
      return bad_input(fmt::format("{}: tensor {} is left over: {} has no place for it", files->file_of[tensor->name],
                                   printable(tensor->name), authority));
  if (options.shape) {
    ModelShape stated = *options.shape;
    if (stated.curve())
      stated.freq_dim = stated.time_embed_hidden_dim = 0;
    if (const std::string difference = first_difference(out.shape_, stated); !difference.empty())
      return bad_input(fmt::format("{}: the checkpoint is not of the shape stated for it: {}", path, difference));
  }
  out.files_ = std::move(files->files);
  return out;
}

const WeightInfo* Checkpoint::find(std::string_view internal_name) const {
  const auto found =
      std::find_if(weights_.begin(), weights_.end(), [&](const auto& w) { return w.name == internal_name; });
  return found == weights_.end() ? nullptr : &*found;
}

Result<void> Checkpoint::read(std::string_view internal_name, std::span<std::byte> out) const {
  const WeightInfo* info = find(internal_name);
  if (!info)
    return Error{ExitCode::internal, fmt::format("{}: has no weight {}", path_, internal_name)};
  std::size_t bytes = probes::item_size(info->dtype);
  for (const std::int64_t size : info->shape)
    bytes *= static_cast<std::size_t>(size);
  if (out.size() != bytes)
    return Error{ExitCode::internal,
                 fmt::format("{}: weight {} is {} bytes long, not {}", path_, internal_name, bytes, out.size())};
  for (const Piece& piece : pieces_[static_cast<std::size_t>(info - weights_.data())])
    std::memcpy(out.data() + piece.target, piece.source.data(), piece.source.size());
  return {};
}

std::string Checkpoint::digest() const {
  std::vector<std::string> lines;
  for (const SafetensorsFile& file : files_)
    for (const TensorEntry& tensor : file.tensors())
      lines.push_back(fmt::format("{} {} [{}]", tensor.name, tensor.dtype_name, fmt::join(tensor.shape, ",")));
  std::sort(lines.begin(), lines.end());
  Sha256 hash;
  hash.update(fmt::format("{}", fmt::join(lines, "\n")));
  return hash.hex();
}

} // namespace h3diff::cases
