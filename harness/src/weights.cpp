#include "weights.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <map>

namespace h3diff::harness {
namespace {

using probes::DType;

// Modules that stay in the island dtype: diffusers' _keep_in_fp32_modules.
bool is_island(std::string_view module) {
  return module == "video_patch_proj" || module == "audio_patch_proj" || module.starts_with("time_embedder.") ||
         module == "final_layer.video_out" || module == "final_layer.audio_out";
}

// Pruned checkpoints keep the table and every AdaLN projection in float32.
bool is_curve_float32(std::string_view module) { return module == "adaln_t_table" || module.ends_with("adaln_proj"); }

DType target_dtype(std::string_view module, const probes::ModelShape& shape, const LoadOptions& options) {
  if (shape.curve() && is_curve_float32(module))
    return DType::float32;
  return is_island(module) ? options.island_dtype : options.compute_dtype;
}

class Loader {
public:
  Loader(const WeightSource& source, const probes::ModelShape& shape, const LoadOptions& options, ProbeSink* sink)
      : source_(source), shape_(shape), options_(options), sink_(sink) {
    for (const auto& entry : source.entries)
      entries_[entry.name] = &entry;
  }

  Result<Weights> load() {
    const probes::Graph graph(shape_);
    for (const probes::ProbeInfo& info : graph.probes()) {
      if (!info.weight)
        break; // weights come first
      if (Result<void> loaded = load(info); !loaded)
        return loaded.error();
    }
    return assemble();
  }

private:
  const WeightSource& source_;
  const probes::ModelShape& shape_;
  const LoadOptions& options_;
  ProbeSink* sink_;
  std::map<std::string, const WeightSource::Entry*> entries_;
  std::map<std::string, at::Tensor> tensors_; // by probe name without "weights."

  const WeightSource::Entry* find(const std::string& path, bool bias) const {
    const std::string end = bias ? ".bias" : ".weight";
    for (const std::string& name : {path + end, path + ".linear" + end, path}) {
      const auto found = entries_.find(name);
      if (found != entries_.end())
        return found->second;
    }
    return nullptr;
  }

  Result<void> load(const probes::ProbeInfo& info) {
    const std::string key = info.name.substr(std::string_view("weights.").size());
    const bool bias = key.ends_with(".bias");
    const std::string module = bias ? key.substr(0, key.size() - 5) : key;
    at::Tensor tensor;
    if (module == "rope.inv_freq") {
      tensor = options_.rope_inv_freq;
    } else {
      const auto* entry = find(module, bias);
      if (entry == nullptr)
        return bad_input(fmt::format("{}: there is no tensor for {}", source_.label, info.name));
      if (!probes::is_floating(entry->dtype))
        return bad_input(fmt::format("{}: tensor {} is {}, and no op of this profile multiplies with that",
                                     source_.label, entry->name, probes::name(entry->dtype)));
      tensor = at::empty(entry->shape, scalar_type(entry->dtype));
      const std::span<std::byte> bytes(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
      if (Result<void> read = source_.read(*entry, bytes); !read)
        return read.error();
      tensor = tensor.to(scalar_type(target_dtype(module, shape_, options_)));
      if (tensor.dim() == 2 && options_.zero_columns.matches(info.name))
        tensor.narrow(1, options_.zero_columns.begin, options_.zero_columns.end - options_.zero_columns.begin).zero_();
    }
    if (sink_ != nullptr)
      sink_->probe(info.name, tensor);
    place(key, tensor);
    return {};
  }

  // A copy of some rows in memory of its own, on the run's device.
  at::Tensor own(const at::Tensor& rows) const { return rows.to(options_.device, rows.scalar_type(), false, true); }

  void place(const std::string& key, const at::Tensor& tensor) {
    if (key.ends_with(".qkv_proj") && !options_.flat_qkv) {
      const std::int64_t rows = tensor.size(0) / 3;
      const std::string attention = key.substr(0, key.size() - std::string_view("qkv_proj").size());
      tensors_[attention + "q"] = own(tensor.narrow(0, 0, rows));
      tensors_[attention + "k"] = own(tensor.narrow(0, rows, rows));
      tensors_[attention + "v"] = own(tensor.narrow(0, 2 * rows, rows));
    } else if (key.ends_with(".fc1") && !options_.gate_first) {
      const std::int64_t rows = tensor.size(0) / 2;
      const at::Tensor value_gate = at::cat({tensor.narrow(0, rows, rows), tensor.narrow(0, 0, rows)});
      tensors_[key] = value_gate.to(options_.device);
    } else {
      tensors_[key] = tensor.to(options_.device);
    }
  }

  at::Tensor take(const std::string& key) { return std::move(tensors_.at(key)); }
  LinearWeights take_linear(const std::string& module, bool bias = true) {
    return {take(module), bias ? take(module + ".bias") : at::Tensor()};
  }
  TrunkWeights take_trunk(const std::string& block) {
    const std::string attention = block + "attn.";
    std::vector<at::Tensor> qkv;
    if (options_.flat_qkv)
      qkv = {take(attention + "qkv_proj")};
    else
      qkv = {take(attention + "q"), take(attention + "k"), take(attention + "v")};
    return {take(block + "norm1"),
            {std::move(qkv), take(attention + "q_norm"), take(attention + "k_norm"), take(attention + "out_proj")},
            take(block + "norm2"),
            {take(block + "mlp.fc1"), take(block + "mlp.fc2")}};
  }

  Weights assemble() {
    Weights weights;
    weights.video_patch_proj = take_linear("video_patch_proj");
    weights.audio_patch_proj = take_linear("audio_patch_proj");
    weights.condition_proj = take_linear("condition_proj");
    for (std::int64_t n = 0; n < shape_.num_refiner_layers; ++n)
      weights.refiner.push_back(take_trunk(fmt::format("token_refiner.blocks.{}.", n)));
    weights.refiner_final_norm = take("token_refiner.final_norm");
    weights.rope_inv_freq = take("rope.inv_freq");
    if (shape_.curve()) {
      weights.adaln_t_table = take("adaln_t_table");
    } else {
      weights.time_proj_in = take_linear("time_embedder.proj_in");
      weights.time_proj_out = take_linear("time_embedder.proj_out");
    }
    for (std::int64_t n = 0; n < shape_.num_layers; ++n) {
      const std::string block = fmt::format("blocks.{}.", n);
      weights.blocks.push_back({take_linear(block + "adaln_proj"), take_trunk(block)});
    }
    weights.final_adaln = take_linear("final_layer.adaln_proj");
    weights.final_norm = take("final_layer.norm");
    weights.video_out = take_linear("final_layer.video_out");
    weights.audio_out = take_linear("final_layer.audio_out");
    return weights;
  }
};

} // namespace

Result<Weights> load_weights(const WeightSource& source, const probes::ModelShape& shape, const LoadOptions& options,
                             ProbeSink* sink) {
  return Loader(source, shape, options, sink).load();
}

} // namespace h3diff::harness
