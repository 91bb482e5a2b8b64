// inputs.safetensors: the arguments of diffusers' forward, by its names.
#pragma once
#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/safetensors.hpp"

namespace h3diff::cases {

struct InputTensors {
  std::vector<SafetensorsWriter::Declared> declared;
  std::vector<std::vector<std::byte>> bytes;
};
InputTensors input_tensors(const Inputs&);

// Checks everything that bundle.hpp promises of one inputs.safetensors, given the model's row widths.
Result<Inputs> read_inputs(const std::string& path, const probes::ModelShape&, std::int64_t cond_video_rows,
                           std::int64_t cond_audio_rows);

} // namespace h3diff::cases
