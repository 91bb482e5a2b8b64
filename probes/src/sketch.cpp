// Sketch: docs/dump-format.md section 9.
#include "h3diff/probes/measure.hpp"
#include "measure_sketch.hpp"
#include <algorithm>
#include <cmath>

namespace h3diff::probes {

void add_rotated(const kernels::SketchSums& sums, Sketch& sketch) {
  for (std::size_t row = 0; row < 8; ++row)
    for (std::size_t bucket = 0; bucket < kernels::panel_units; ++bucket)
      for (std::size_t col = 0; col < kernels::lanes; ++col)
        sketch[bucket + kernels::panel_units * ((row + col) % 8)] += sums.value[row][bucket][col];
}

SketchDistance sketch_distance(std::span<const float> a, std::span<const float> b) {
  const std::size_t k = std::min(a.size(), b.size());
  if (k == 0)
    return {};
  const std::vector<double> left = folded(a, k), right = folded(b, k);
  double squared = 0, fourth = 0, norm_left = 0, norm_right = 0;
  for (std::size_t i = 0; i < k; ++i) {
    const double difference = left[i] - right[i], square = difference * difference;
    squared += square;
    fourth += square * square;
    norm_left += left[i] * left[i];
    norm_right += right[i] * right[i];
  }
  // What rounding the buckets to float32 adds to the distance.
  const double rounding = 0x1p-24 * (std::sqrt(norm_left) + std::sqrt(norm_right));
  return {squared, 3 * std::sqrt(2 * fourth) + rounding * (2 * std::sqrt(squared) + rounding)};
}

} // namespace h3diff::probes
