// Brings one tile (4 rows x up to 512 columns) of a segment into the first-level cache, as raw bytes for the
// digest and as float32 or float64 for the sums. Missing rows, and columns up to a multiple of 16 bytes and of
// 8 elements, are zero.
#pragma once
#include "measure_kernels.hpp"
#include "measure_rows.hpp"
#include <cstring>

namespace h3diff::probes {

struct alignas(64) TileBuffer {
  static constexpr std::size_t row_bytes = kernels::tile_cols * 8;
  std::byte row[kernels::block_rows][row_bytes];
};

// float32 holds every value of the types of up to 4 bytes but int32; the others are summed as float64.
constexpr bool sums_as_double(DType dtype) {
  return dtype == DType::float64 || dtype == DType::int32 || dtype == DType::int64;
}

// Bits of the smallest normal number of `dtype` in the type it is summed as; 1 if it has no subnormals, so that
// only zeros are below.
std::uint64_t small_threshold(DType);

// `raw` holds pointers that lead either into the tensor itself or into `buffer`.
kernels::Rows raw_tile(const SegmentReader&, const std::byte* const start[kernels::block_rows], int rows,
                       std::int64_t first_col, int cols, TileBuffer& buffer);

// Converts `count` elements, a multiple of 8; float32 and float64 come back as they are, without a copy.
const std::byte* widened(const kernels::Table&, DType, const std::byte* raw, int count, std::byte* buffer);
kernels::Rows widened_tile(const kernels::Table&, DType, const kernels::Rows& raw, int cols, TileBuffer& buffer);

inline double element(bool as_double, const std::byte* row, std::int64_t col) {
  if (as_double) {
    double value;
    std::memcpy(&value, row + col * 8, 8);
    return value;
  }
  float value;
  std::memcpy(&value, row + col * 4, 4);
  return static_cast<double>(value);
}

} // namespace h3diff::probes
