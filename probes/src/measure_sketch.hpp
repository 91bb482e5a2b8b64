// Pieces of the sketch (docs/dump-format.md section 9) around the inner loop in measure_kernels.inc.
#pragma once
#include "measure_kernels.hpp"
#include <array>
#include <span>
#include <vector>

namespace h3diff::probes {

inline constexpr int sketch_buckets = 256;
using Sketch = std::array<double, sketch_buckets>;

// Rows that share one rotation of the buckets.
constexpr std::int64_t turn_rows(std::int64_t rows) { return rows >= 512 ? 8 : 1; }
constexpr std::uint32_t sketch_turn(std::int64_t row_group, std::int64_t panel) {
  return kernels::mix(static_cast<std::uint32_t>(row_group) * 0x9E3779B1u +
                      static_cast<std::uint32_t>(panel) * 0x85EBCA6Bu + 0x3C6EF372u) >>
         27;
}
constexpr std::uint32_t sign_row_key(std::int64_t row) {
  return kernels::mix(static_cast<std::uint32_t>(row / 4) * 0x9E3779B1u + 0x243F6A88u);
}

// Buckets from the sums that the inner loop keeps per (row mod 8, bucket mod 32, column mod 8).
void add_rotated(const kernels::SketchSums&, Sketch&);

// S_k[b] = sum of S[b'] over b' mod k = b.
template <class T> std::vector<double> folded(std::span<const T> sketch, std::size_t k) {
  std::vector<double> out(k, 0.0);
  for (std::size_t b = 0; b < sketch.size(); ++b)
    out[b % k] += static_cast<double>(sketch[b]);
  return out;
}

} // namespace h3diff::probes
