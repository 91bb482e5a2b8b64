// Test data and the strided views over it.
#pragma once
#include "h3diff/probes/measure.hpp"
#include "measure_kernels.hpp"
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace h3diff::probes::test {

using Bytes = std::vector<std::uint8_t>;

inline const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> dtypes{DType::float64,       DType::float32,     DType::bfloat16, DType::float16,
                                         DType::float8_e4m3fn, DType::float8_e5m2, DType::int8,     DType::uint8,
                                         DType::int32,         DType::int64,       DType::boolean};
  return dtypes;
}

// splitmix64, so that data do not depend on a standard library's distributions.
class Random {
public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; } // [0, 1)
  double normal() {                                                        // sum of twelve 16-bit uniforms
    double sum = -6;
    for (int i = 0; i < 3; ++i)
      for (std::uint64_t word = bits(), part = 0; part < 4; ++part, word >>= 16)
        sum += static_cast<double>(word & 0xFFFF) * 0x1p-16;
    return sum;
  }

private:
  std::uint64_t state_;
};

inline std::vector<RowRange> all_rows(std::int64_t rows) { return {{0, rows}}; }

// One element of `dtype` nearest to `value`, by truncation of the mantissa: for test data, not for numerics.
inline void put(DType dtype, double value, void* to) {
  const auto store = [to](auto v) { std::memcpy(to, &v, sizeof v); };
  switch (dtype) {
  case DType::float64: return store(value);
  case DType::float32: return store(static_cast<float>(value));
  case DType::bfloat16:
    return store(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
  case DType::int8: return store(static_cast<std::int8_t>(std::clamp(value, -128.0, 127.0)));
  case DType::uint8: return store(static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0)));
  case DType::int32: return store(static_cast<std::int32_t>(value));
  case DType::int64: return store(static_cast<std::int64_t>(value));
  case DType::boolean: return store(static_cast<std::uint8_t>(value > 0));
  default: { // the small floats: the closest value at or below in magnitude, by search over all of them
    const int bits = static_cast<int>(item_size(dtype)) * 8;
    std::uint32_t best = 0;
    for (std::uint32_t step = 1u << (bits - 2); step > 0; step /= 2) {
      const std::uint16_t candidate = static_cast<std::uint16_t>(best | step);
      const double v = to_double(dtype, &candidate);
      if (v <= std::abs(value))
        best = candidate;
    }
    if (value < 0)
      best |= 1u << (bits - 1);
    std::memcpy(to, &best, item_size(dtype));
  }
  }
}

// Values of every kind that the type has: ordinary ones of both signs, zeros of both signs, and, if asked for,
// NaN with payloads, infinities and subnormals (random bits hold them all).
inline Bytes random_tensor(DType dtype, std::int64_t elements, std::uint64_t seed, bool any_bits = false) {
  Random random(seed);
  const std::size_t item = item_size(dtype);
  Bytes data(static_cast<std::size_t>(elements) * item);
  for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) {
    std::uint8_t* at = data.data() + i * item;
    if (any_bits && dtype != DType::boolean && random.below(4) == 0) {
      const std::uint64_t bits = random.bits();
      std::memcpy(at, &bits, item);
    } else if (random.below(16) == 0) {
      put(dtype, random.below(2) == 0 ? -0.0 : 0.0, at);
    } else {
      put(dtype, 3 * random.normal(), at);
    }
  }
  return data;
}

// The same [rows, cols] tensor laid out in another way; `storage` holds it.
struct Laid {
  std::string name;
  Bytes storage;
  TensorView view;
};

inline std::vector<Laid> layouts(const Bytes& data, DType dtype, std::int64_t rows, std::int64_t cols) {
  const auto item = static_cast<std::int64_t>(item_size(dtype));
  std::vector<Laid> out;
  const auto lay = [&](std::string name, std::int64_t size, std::int64_t first, TensorView view) {
    Laid laid{std::move(name), Bytes(static_cast<std::size_t>(size * item + item), 0xA5), view};
    std::uint8_t* base = laid.storage.data() + first * item;
    laid.view.data = base;
    std::int64_t inner = 1; // columns of the last dimension, if columns are split in two
    if (view.dims == 3)
      inner = view.sizes[2];
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        std::int64_t offset = r * view.strides[0];
        offset += view.dims == 3 ? c / inner * view.strides[1] + c % inner * view.strides[2] : c * view.strides[1];
        std::memcpy(base + offset * item, data.data() + (r * cols + c) * item, static_cast<std::size_t>(item));
      }
    out.push_back(std::move(laid));
  };
  TensorView plain = TensorView::contiguous(nullptr, dtype, rows, cols);
  lay("contiguous", rows * cols, 0, plain);
  TensorView padded = plain;
  padded.strides = {cols + 5, 1};
  lay("rows apart", rows * (cols + 5), 0, padded);
  TensorView transposed = plain;
  transposed.strides = {1, rows};
  lay("transposed", rows * cols, 0, transposed);
  TensorView gaps = plain;
  gaps.strides = {3 * cols, 3};
  lay("every third element", 3 * rows * cols, 0, gaps);
  if (rows > 0 && cols > 0) {
    TensorView backwards = plain;
    backwards.strides = {-cols, -1};
    lay("backwards", rows * cols, rows * cols - 1, backwards);
  }
  for (const std::int64_t heads : {2, 3, 4}) {
    if (cols == 0 || cols % heads != 0)
      continue;
    TensorView view = plain; // [rows, heads, dim] seen in [heads, rows, dim]
    view.dims = 3;
    view.sizes = {rows, heads, cols / heads};
    view.strides = {cols / heads, rows * (cols / heads), 1};
    lay("heads first", rows * cols, 0, view);
  }
  return out;
}

inline std::vector<kernels::Isa> isas() {
  std::vector<kernels::Isa> out{kernels::Isa::portable};
  if (kernels::available(kernels::Isa::avx2))
    out.push_back(kernels::Isa::avx2);
  return out;
}

// Gives the best instruction set back at the end of a test.
struct IsaGuard {
  ~IsaGuard() { kernels::choose_isa(isas().back()); }
};

inline bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

// The first field in which two measurements differ, bit for bit; empty if none.
inline std::string difference(const Measurement& a, const Measurement& b) {
  if (a.rows != b.rows || a.cols != b.cols)
    return "shape";
  if (!(a.digest == b.digest))
    return "digest";
  const Statistics &s = a.statistics, &t = b.statistics;
  if (s.count != t.count || s.zeros != t.zeros || s.nan != t.nan || s.inf != t.inf || s.subnormal != t.subnormal)
    return "counts";
  if (!same_bits(s.mean, t.mean))
    return "mean";
  if (!same_bits(s.std, t.std))
    return "std";
  if (!same_bits(s.l2, t.l2))
    return "l2";
  if (!same_bits(s.min, t.min) || !same_bits(s.max, t.max) || !same_bits(s.absmax, t.absmax))
    return "extremes";
  if (s.absmax_row != t.absmax_row || s.absmax_col != t.absmax_col)
    return "absmax position";
  for (std::size_t i = 0; i < 16; ++i) {
    if (!same_bits(s.row_bands[i], t.row_bands[i]))
      return "row_bands";
    if (!same_bits(s.col_groups[i], t.col_groups[i]))
      return "col_groups";
  }
  if (a.sketch.size() != b.sketch.size())
    return "sketch size";
  for (std::size_t i = 0; i < a.sketch.size(); ++i)
    if (!same_bits(a.sketch[i], b.sketch[i]))
      return "sketch bucket " + std::to_string(i);
  if (a.columns.size() != b.columns.size())
    return "columns";
  for (std::size_t i = 0; i < a.columns.size(); ++i) {
    const ColumnMeasurement &c = a.columns[i], &d = b.columns[i];
    if (c.column != d.column || !(c.digest == d.digest) || c.zeros != d.zeros || c.nan != d.nan || c.inf != d.inf ||
        !same_bits(c.mean, d.mean) || !same_bits(c.std, d.std) || !same_bits(c.l2, d.l2) || !same_bits(c.min, d.min) ||
        !same_bits(c.max, d.max) || !same_bits(c.absmax, d.absmax))
      return "column " + std::to_string(i);
  }
  return {};
}

} // namespace h3diff::probes::test
