// The one generator of everything synthetic: Philox4x32-10, keyed by seed and tensor name, counted by element.
// The same values on every device, thread count and language; docs/cases.md specifies it in full.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace h3diff::cases {

// Philox4x32-10 (Salmon et al., SC 2011), as in Random123.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

class TensorStream {
public:
  // key = first 8 bytes (two little-endian words) of SHA-256 of "SEED\nNAME", SEED in decimal.
  TensorStream(std::uint64_t seed, std::string_view tensor_name);
  // Approximately normal, mean 0, variance 1, |x| < 4.9: the eight 16-bit halves of
  // philox({index lo, index hi, 0, 0}) summed, minus 8 * 32767.5, times 1/sqrt(8 * (2^32 - 1) / 12) in float32.
  float normal(std::uint64_t index) const;
  // normal(begin), normal(begin + 1), ...
  void normals(std::uint64_t begin, std::span<float> out) const;
  // Uniform in [0, 1): word 0 of philox({index lo, index hi, 1, 0}) >> 8, times 2^-24.
  float uniform(std::uint64_t index) const;

private:
  std::array<std::uint32_t, 2> key_;
};

} // namespace h3diff::cases
