// Reads rows of a strided view in a segment's order: where a row starts, and its elements as contiguous bytes.
#pragma once
#include "h3diff/probes/segments.hpp"
#include "h3diff/probes/tensor_view.hpp"
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace h3diff::probes {

class SegmentReader {
public:
  SegmentReader(const TensorView&, std::span<const RowRange>);

  std::int64_t rows() const { return rows_; } // of the segment
  std::int64_t cols() const { return cols_; }
  std::size_t item() const { return item_; }
  bool contiguous() const { return contiguous_; } // the columns of a row follow each other in memory

  // First element of row `row` of the segment.
  const std::byte* row(std::int64_t row) const;
  // Copies `count` elements from column `col` of the row that starts at `start`.
  void gather(const std::byte* start, std::int64_t col, std::int64_t count, std::byte* to) const;
  // Asks for the same columns of `rows` rows that follow each other from `start`, where they are scattered over
  // memory; the processor sees plain rows coming by itself.
  void prefetch(const std::byte* start, int rows, std::int64_t col, std::int64_t count) const;

private:
  struct Axis {
    std::int64_t size = 1, stride = 0; // stride in bytes
  };
  template <std::size_t Item>
  void gather_items(const std::byte* start, std::int64_t col, std::int64_t count, std::byte* to) const;

  const std::byte* data_ = nullptr;
  std::size_t item_ = 1;
  std::int64_t rows_ = 0, cols_ = 1;
  bool contiguous_ = true;
  int row_axes_ = 0, col_axes_ = 0; // outermost first, neighbours merged where memory allows
  std::array<Axis, 6> row_axis_{}, col_axis_{};
  std::vector<RowRange> ranges_;
  std::vector<std::int64_t> range_first_; // row of the segment at which each range starts
};

} // namespace h3diff::probes
