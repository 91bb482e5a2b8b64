#include "h3diff/probes/measure.hpp"
#include "measure_threads.hpp"
#include "measure_tile.hpp"
#include <algorithm>
#include <cmath>
#include <memory>

namespace h3diff::probes {

using namespace kernels;

double cosine(const TensorView& a, const TensorView& b, std::span<const RowRange> ranges) {
  const DefaultRounding rounding;
  struct Side {
    Side(const TensorView& view, std::span<const RowRange> rows)
        : reader(view, rows), dtype(view.dtype), as_double(sums_as_double(view.dtype)) {}
    const std::byte* load(const Table& kernels, std::int64_t row, std::int64_t col, int cols) {
      reader.gather(reader.row(row), col, cols, raw);
      return widened(kernels, dtype, raw, (cols + lanes - 1) / lanes * lanes, wide);
    }
    SegmentReader reader;
    DType dtype;
    bool as_double;
    alignas(64) std::byte raw[TileBuffer::row_bytes] = {};
    alignas(64) std::byte wide[TileBuffer::row_bytes] = {};
  };
  const auto left = std::make_unique<Side>(a, ranges), right = std::make_unique<Side>(b, ranges);
  const Table& kernels = table();
  double dot = 0, norm_a = 0, norm_b = 0;
  for (std::int64_t row = 0; row < left->reader.rows(); ++row) {
    for (std::int64_t col = 0; col < left->reader.cols(); col += tile_cols) {
      const int cols = static_cast<int>(std::min<std::int64_t>(tile_cols, left->reader.cols() - col));
      const std::byte* x = left->load(kernels, row, col, cols);
      const std::byte* y = right->load(kernels, row, col, cols);
      double xy = 0, xx = 0, yy = 0;
      for (int c = 0; c < cols; ++c) {
        const double u = element(left->as_double, x, c), v = element(right->as_double, y, c);
        if (!std::isfinite(u) || !std::isfinite(v))
          continue;
        xy += u * v;
        xx += u * u;
        yy += v * v;
      }
      dot += xy;
      norm_a += xx;
      norm_b += yy;
    }
  }
  if (norm_a == 0 || norm_b == 0)
    return Statistics::undefined;
  return dot / (std::sqrt(norm_a) * std::sqrt(norm_b));
}

} // namespace h3diff::probes
