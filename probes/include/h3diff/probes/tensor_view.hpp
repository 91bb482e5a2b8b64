// A borrowed strided tensor and its canonical 2-D reading.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include <array>
#include <cstdint>

namespace h3diff::probes {

// Up to 6 dimensions; strides in elements, any sign, 0 allowed. The leading `row_dims` dimensions are
// flattened (row-major) into rows, the others into columns: a [1, S, heads, dim] tensor with row_dims = 2 is
// [S, heads*dim]. Nothing is owned.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int dims = 0;
  int row_dims = 0;
  std::array<std::int64_t, 6> sizes{};
  std::array<std::int64_t, 6> strides{};

  std::int64_t rows() const; // product of the leading row_dims sizes (1 if row_dims = 0)
  std::int64_t cols() const;

  static TensorView contiguous(const void* data, DType, std::int64_t rows, std::int64_t cols);
};

} // namespace h3diff::probes
