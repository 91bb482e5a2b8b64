// What reading and writing safetensors share.
#pragma once
#include "h3diff/cases/safetensors.hpp"
#include <string_view>

namespace h3diff::cases {

// Every dtype that the format defines. `probe` is set for those that probes know.
struct SafetensorsDType {
  std::string_view name;
  int bits;
  std::optional<probes::DType> probe;
};
const SafetensorsDType* find_dtype(std::string_view name);
std::string_view safetensors_name(probes::DType);

inline constexpr std::size_t max_header_bytes = 100'000'000; // as the reference implementation has it

// Length and header of a file with these tensors, in this order, padded so that the data starts at a multiple
// of 8.
std::string safetensors_header(const std::vector<SafetensorsWriter::Declared>&,
                               const std::map<std::string, std::string>& metadata);

} // namespace h3diff::cases
