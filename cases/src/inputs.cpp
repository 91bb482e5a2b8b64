#include "file.hpp"
#include "h3diff/cases/philox.hpp"
#include "h3diff/cases/schedule.hpp"
#include "input_tensors.hpp"
#include "safetensors_format.hpp"
#include "sha256.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace h3diff::cases {

using probes::DType;

namespace {

// Standard deviation of clean latents; conditioning rows are clean to three digits.
constexpr float latent_std = 0.96f;

std::vector<float> normal_rows(const CaseSpec& spec, const char* name, std::int64_t rows, std::int64_t width,
                               std::int64_t scaled_rows, float scale) {
  std::vector<float> values(static_cast<std::size_t>(rows * width));
  TensorStream(spec.seed, name).normals(0, values);
  for (std::int64_t i = 0; i < std::min(scaled_rows, rows) * width; ++i)
    values[static_cast<std::size_t>(i)] *= scale;
  return values;
}

template <class T> void add(InputTensors& out, const char* name, DType dtype, std::vector<std::int64_t> shape,
                            const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  out.declared.push_back({name, dtype, std::move(shape)});
  out.bytes.emplace_back(bytes.begin(), bytes.end());
}

std::int64_t count_of(const auto& container) { return static_cast<std::int64_t>(container.size()); }

// Reads tensors of one file; keeps the first failure, after which everything is a no-op.
class Reader {
public:
  explicit Reader(const SafetensorsFile& file) : file_(file) {}

  // Floating, exact in float32 and finite; [1, rows, width].
  void rows(const char* name, std::int64_t width, std::vector<float>& out, DType& dtype, std::int64_t& rows) {
    const TensorEntry* tensor = find(name);
    if (!tensor)
      return;
    if (tensor->shape.size() != 3 || tensor->shape[0] != 1 || tensor->shape[2] != width)
      return fail(name, fmt::format("has the shape [{}], not [1, rows, {}]", fmt::join(tensor->shape, ", "), width));
    if (!tensor->dtype || !probes::is_floating(*tensor->dtype))
      return wrong_dtype(*tensor, "a floating dtype");
    dtype = *tensor->dtype;
    rows = tensor->shape[1];
    floats(*tensor, out);
  }

  void floats(const char* name, std::vector<float>& out) {
    const TensorEntry* tensor = find(name);
    if (!tensor)
      return;
    if (tensor->shape.size() != 1 || tensor->shape[0] < 1)
      return fail(name, fmt::format("has the shape [{}], not [count]", fmt::join(tensor->shape, ", ")));
    if (!tensor->dtype || !probes::is_floating(*tensor->dtype))
      return wrong_dtype(*tensor, "a floating dtype");
    floats(*tensor, out);
  }

  void positions(const char* name, std::int64_t rows, std::vector<double>& out) {
    const TensorEntry* tensor = find(name);
    if (!tensor)
      return;
    if (tensor->shape != std::vector<std::int64_t>{rows, 3})
      return fail(name, fmt::format("has the shape [{}], not [{}, 3]", fmt::join(tensor->shape, ", "), rows));
    if (!tensor->dtype || !probes::is_floating(*tensor->dtype))
      return wrong_dtype(*tensor, "a floating dtype");
    out.resize(static_cast<std::size_t>(tensor->elements()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = value(*tensor, i);
      if (!std::isfinite(out[i]))
        return fail(name, fmt::format("holds {} at element {}", out[i], i));
    }
  }

  // Integers from 0 to limit - 1; `rows` < 0 takes any length.
  template <class T> void integers(const char* name, std::int64_t rows, std::int64_t limit, std::vector<T>& out) {
    const TensorEntry* tensor = find(name);
    if (!tensor)
      return;
    if (tensor->shape.size() != 1 || (rows >= 0 && tensor->shape[0] != rows))
      return fail(name, fmt::format("has the shape [{}], not [{}]", fmt::join(tensor->shape, ", "),
                                    rows >= 0 ? std::to_string(rows) : "rows"));
    if (tensor->dtype != DType::int64 && tensor->dtype != DType::int32)
      return wrong_dtype(*tensor, "I64 or I32");
    out.resize(static_cast<std::size_t>(tensor->elements()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t number = integer(*tensor, i);
      if (number < 0 || number >= limit)
        return fail(name, fmt::format("holds {} at element {}, which is not in 0 to {}", number, i, limit - 1));
      out[i] = static_cast<T>(number);
    }
  }

  void fail(const char* name, const std::string& fact) {
    if (!error_)
      error_ = bad_input(fmt::format("{}: tensor {} {}", file_.path(), name, fact));
  }
  const std::optional<Error>& error() const { return error_; }

private:
  const TensorEntry* find(const char* name) {
    if (error_)
      return nullptr;
    const TensorEntry* tensor = file_.find(name);
    if (!tensor)
      fail(name, "is missing");
    return tensor;
  }

  void wrong_dtype(const TensorEntry& tensor, const char* wanted) {
    fail(tensor.name.c_str(), fmt::format("is {}, not {}", tensor.dtype_name, wanted));
  }

  // Offsets in a file need not be aligned: elements are copied out.
  static double value(const TensorEntry& tensor, std::size_t i) {
    std::array<std::byte, 8> element{};
    const std::size_t bytes = probes::item_size(*tensor.dtype);
    std::memcpy(element.data(), tensor.bytes.data() + i * bytes, bytes);
    return probes::to_double(*tensor.dtype, element.data());
  }

  static std::int64_t integer(const TensorEntry& tensor, std::size_t i) {
    if (tensor.dtype == DType::int32) {
      std::int32_t number = 0;
      std::memcpy(&number, tensor.bytes.data() + i * sizeof number, sizeof number);
      return number;
    }
    std::int64_t number = 0;
    std::memcpy(&number, tensor.bytes.data() + i * sizeof number, sizeof number);
    return number;
  }

  void floats(const TensorEntry& tensor, std::vector<float>& out) {
    out.resize(static_cast<std::size_t>(tensor.elements()));
    if (tensor.dtype == DType::float32 && !out.empty())
      std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double exact = tensor.dtype == DType::float32 ? static_cast<double>(out[i]) : value(tensor, i);
      out[i] = static_cast<float>(exact);
      if (!std::isfinite(exact))
        return fail(tensor.name.c_str(), fmt::format("holds {} at element {}", exact, i));
      if (static_cast<double>(out[i]) != exact)
        return fail(tensor.name.c_str(), fmt::format("holds {:.17g} at element {}, which float32 cannot", exact, i));
    }
  }

  const SafetensorsFile& file_;
  std::optional<Error> error_;
};

} // namespace

Inputs make_inputs(const CaseSpec& spec) {
  Inputs inputs;
  inputs.sequence = pack(spec.geometry, spec.shape);
  const probes::SequenceLayout& layout = inputs.sequence.layout;
  inputs.video_dtype = inputs.audio_dtype = inputs.text_dtype = DType::float32;
  inputs.video_rows = count_of(layout.video_indices);
  inputs.audio_rows = count_of(layout.audio_indices);
  inputs.text_rows = count_of(layout.text_indices);
  inputs.video_width = spec.shape.video_patch_dim();
  inputs.audio_width = spec.shape.audio_in_channels;
  inputs.text_width = spec.shape.text_dim;
  inputs.video =
      normal_rows(spec, "hidden_states", inputs.video_rows, inputs.video_width, layout.cond_video_rows, latent_std);
  inputs.audio = normal_rows(spec, "audio_hidden_states", inputs.audio_rows, inputs.audio_width, layout.cond_audio_rows,
                             latent_std);
  inputs.text = normal_rows(spec, "encoder_hidden_states", inputs.text_rows, inputs.text_width, spec.weights.sink_rows,
                            static_cast<float>(spec.weights.sink_scale));
  inputs.timesteps = row_timesteps(layout, make_schedule(spec.steps, spec.shift_video).timesteps.front(),
                                   make_schedule(spec.steps, spec.shift_audio).timesteps.front());
  return inputs;
}

InputTensors input_tensors(const Inputs& inputs) {
  const probes::SequenceLayout& layout = inputs.sequence.layout;
  const std::vector<std::int64_t> tags(layout.token_tags.begin(), layout.token_tags.end());
  InputTensors out;
  add(out, "hidden_states", DType::float32, {1, inputs.video_rows, inputs.video_width}, inputs.video);
  add(out, "audio_hidden_states", DType::float32, {1, inputs.audio_rows, inputs.audio_width}, inputs.audio);
  add(out, "encoder_hidden_states", DType::float32, {1, inputs.text_rows, inputs.text_width}, inputs.text);
  add(out, "timestep", DType::float32, {count_of(inputs.timesteps.timesteps)}, inputs.timesteps.timesteps);
  add(out, "timestep_indices", DType::int64, {layout.rows}, inputs.timesteps.indices);
  add(out, "token_tags", DType::int64, {layout.rows}, tags);
  add(out, "position_ids", DType::float64, {layout.rows, 3}, inputs.sequence.position_ids);
  add(out, "video_indices", DType::int64, {inputs.video_rows}, layout.video_indices);
  add(out, "audio_indices", DType::int64, {inputs.audio_rows}, layout.audio_indices);
  add(out, "text_indices", DType::int64, {inputs.text_rows}, layout.text_indices);
  return out;
}

std::string inputs_digest(const CaseSpec& spec) {
  const InputTensors tensors = input_tensors(make_inputs(spec));
  Sha256 hash;
  hash.update(safetensors_header(tensors.declared, {}));
  for (const auto& bytes : tensors.bytes)
    hash.update(std::span<const std::byte>(bytes));
  return hash.hex();
}

Result<Inputs> read_inputs(const std::string& path, const probes::ModelShape& shape, std::int64_t cond_video_rows,
                           std::int64_t cond_audio_rows) {
  auto file = SafetensorsFile::open(path);
  if (!file)
    return file.error();
  Inputs inputs;
  probes::SequenceLayout& layout = inputs.sequence.layout;
  Reader reader(*file);
  inputs.video_width = shape.video_patch_dim();
  inputs.audio_width = shape.audio_in_channels;
  inputs.text_width = shape.text_dim;
  reader.rows("hidden_states", inputs.video_width, inputs.video, inputs.video_dtype, inputs.video_rows);
  reader.rows("audio_hidden_states", inputs.audio_width, inputs.audio, inputs.audio_dtype, inputs.audio_rows);
  reader.rows("encoder_hidden_states", inputs.text_width, inputs.text, inputs.text_dtype, inputs.text_rows);
  reader.integers("token_tags", -1, 3, layout.token_tags);
  layout.rows = count_of(layout.token_tags);
  reader.floats("timestep", inputs.timesteps.timesteps);
  reader.integers("timestep_indices", layout.rows, count_of(inputs.timesteps.timesteps), inputs.timesteps.indices);
  reader.positions("position_ids", layout.rows, inputs.sequence.position_ids);
  reader.integers("video_indices", inputs.video_rows, layout.rows, layout.video_indices);
  reader.integers("audio_indices", inputs.audio_rows, layout.rows, layout.audio_indices);
  reader.integers("text_indices", inputs.text_rows, layout.rows, layout.text_indices);
  if (reader.error())
    return *reader.error();
  layout.cond_video_rows = cond_video_rows;
  layout.cond_audio_rows = cond_audio_rows;
  if (cond_video_rows > inputs.video_rows || cond_audio_rows > inputs.audio_rows)
    return bad_input(fmt::format("{}: has {} video and {} audio rows, fewer than the {} and {} conditioning rows that "
                                 "case.json states",
                                 path, inputs.video_rows, inputs.audio_rows, cond_video_rows, cond_audio_rows));
  if (auto checked = probes::check(layout); !checked)
    return bad_input(fmt::format("{}: {}", path, checked.error().message));
  return inputs;
}

} // namespace h3diff::cases
