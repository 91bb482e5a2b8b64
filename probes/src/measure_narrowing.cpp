#include "h3diff/probes/measure.hpp"
#include "measure_threads.hpp"
#include "measure_tile.hpp"
#include <algorithm>
#include <cmath>
#include <memory>

namespace h3diff::probes {
namespace {

using namespace kernels;

// Is a double a value of a floating format? It is if it is a multiple of the format's spacing at that size.
class FloatFormat {
public:
  explicit FloatFormat(DType dtype)
      : significand_(static_cast<int>(std::lround(-std::log2(unit_roundoff(dtype))))), normal_(smallest_normal(dtype)),
        infinities_(dtype != DType::float8_e4m3fn) {
    switch (dtype) {
    case DType::float8_e4m3fn: largest_ = 448; break;
    case DType::float8_e5m2: largest_ = 57344; break;
    case DType::float16: largest_ = 65504; break;
    case DType::bfloat16: largest_ = 0x1.FEp127; break;
    case DType::float32: largest_ = std::numeric_limits<float>::max(); break;
    default: largest_ = std::numeric_limits<double>::max();
    }
  }
  bool holds(double x) const {
    if (std::isnan(x) || x == 0)
      return true;
    if (std::isinf(x))
      return infinities_;
    const double size = std::fabs(x);
    if (size > largest_)
      return false;
    const double scaled = std::ldexp(size, significand_ - 1 - std::ilogb(std::max(size, normal_)));
    return scaled == std::floor(scaled);
  }

private:
  int significand_;
  double normal_;
  bool infinities_;
  double largest_ = 0;
};

bool integer_holds(DType dtype, double x) {
  if (x != std::floor(x) || std::signbit(x) != (x < 0))
    return false; // NaN and -0 too
  switch (dtype) {
  case DType::int8: return x >= -128 && x <= 127;
  case DType::uint8: return x >= 0 && x <= 255;
  case DType::int32: return x >= -0x1p31 && x < 0x1p31;
  case DType::int64: return x >= -0x1p63 && x < 0x1p63;
  default: return x == 0 || x == 1; // bool
  }
}

// The common case by bits: the lower half of a float32 is zero, or it is a NaN.
bool all_bfloat16(const std::byte* row, int cols) {
  std::uint32_t lost = 0;
  for (int c = 0; c < cols; ++c) {
    std::uint32_t bits;
    std::memcpy(&bits, row + 4 * c, 4);
    lost |= (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0u : bits & 0xFFFFu;
  }
  return lost == 0;
}

} // namespace

bool narrowing_is_lossless(const TensorView& view, std::span<const RowRange> ranges, DType narrow) {
  if (narrow == view.dtype)
    return true;
  const DefaultRounding rounding;
  const SegmentReader reader(view, ranges);
  const FloatFormat format(is_floating(narrow) ? narrow : DType::float64);
  const bool as_double = sums_as_double(view.dtype);
  const Table& kernels = table();
  const auto raw = std::make_unique<TileBuffer>(), wide = std::make_unique<TileBuffer>();
  for (std::int64_t row = 0; row < reader.rows(); ++row) {
    const std::byte* start = reader.row(row);
    for (std::int64_t col = 0; col < reader.cols(); col += tile_cols) {
      const int cols = static_cast<int>(std::min<std::int64_t>(tile_cols, reader.cols() - col));
      reader.gather(start, col, cols, raw->row[0]);
      if (view.dtype == DType::float32 && narrow == DType::bfloat16) {
        if (!all_bfloat16(raw->row[0], cols))
          return false;
        continue;
      }
      const std::byte* values =
          widened(kernels, view.dtype, raw->row[0], (cols + lanes - 1) / lanes * lanes, wide->row[0]);
      for (int c = 0; c < cols; ++c) {
        const double x = element(as_double, values, c);
        if (!(is_floating(narrow) ? format.holds(x) : integer_holds(narrow, x)))
          return false;
      }
    }
  }
  return true;
}

} // namespace h3diff::probes
