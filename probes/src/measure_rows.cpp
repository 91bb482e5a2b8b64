#include "measure_rows.hpp"
#include <algorithm>
#include <cstring>

namespace h3diff::probes {

SegmentReader::SegmentReader(const TensorView& view, std::span<const RowRange> ranges)
    : data_(static_cast<const std::byte*>(view.data)), item_(item_size(view.dtype)), cols_(view.cols()) {
  const auto merge = [&](int begin, int end, std::array<Axis, 6>& axes) {
    int count = 0;
    for (int d = begin; d < end; ++d) {
      const std::int64_t size = view.sizes[static_cast<std::size_t>(d)];
      const std::int64_t stride = view.strides[static_cast<std::size_t>(d)] * static_cast<std::int64_t>(item_);
      if (size == 1)
        continue;
      Axis* outer = count > 0 ? &axes[static_cast<std::size_t>(count - 1)] : nullptr;
      if (outer != nullptr && outer->stride == stride * size) {
        outer->size *= size;
        outer->stride = stride;
      } else {
        axes[static_cast<std::size_t>(count++)] = {size, stride};
      }
    }
    return count;
  };
  row_axes_ = merge(0, view.row_dims, row_axis_);
  col_axes_ = merge(view.row_dims, view.dims, col_axis_);
  contiguous_ = col_axes_ == 0 || (col_axes_ == 1 && col_axis_[0].stride == static_cast<std::int64_t>(item_));
  for (const RowRange& range : ranges) {
    if (range.end <= range.begin)
      continue;
    ranges_.push_back(range);
    range_first_.push_back(rows_);
    rows_ += range.end - range.begin;
  }
}

const std::byte* SegmentReader::row(std::int64_t row) const {
  std::size_t at = 0;
  if (ranges_.size() > 1)
    at = static_cast<std::size_t>(std::upper_bound(range_first_.begin(), range_first_.end(), row) -
                                  range_first_.begin()) -
         1;
  std::int64_t index = ranges_[at].begin + (row - range_first_[at]);
  if (row_axes_ == 1)
    return data_ + index * row_axis_[0].stride;
  std::int64_t offset = 0;
  for (int axis = row_axes_ - 1; axis >= 0; --axis) {
    const Axis& a = row_axis_[static_cast<std::size_t>(axis)];
    offset += index % a.size * a.stride;
    index /= a.size;
  }
  return data_ + offset;
}

template <std::size_t Item>
void SegmentReader::gather_items(const std::byte* start, std::int64_t col, std::int64_t count, std::byte* to) const {
  const Axis inner = col_axes_ > 0 ? col_axis_[static_cast<std::size_t>(col_axes_ - 1)] : Axis{1, 0};
  while (count > 0) {
    std::int64_t rest = col / inner.size, offset = col % inner.size * inner.stride;
    for (int axis = col_axes_ - 2; axis >= 0; --axis) {
      const Axis& a = col_axis_[static_cast<std::size_t>(axis)];
      offset += rest % a.size * a.stride;
      rest /= a.size;
    }
    const std::int64_t run = std::min(count, inner.size - col % inner.size);
    const std::byte* from = start + offset;
    if (inner.stride == static_cast<std::int64_t>(Item)) {
      std::memcpy(to, from, static_cast<std::size_t>(run) * Item);
    } else {
      for (std::int64_t i = 0; i < run; ++i)
        std::memcpy(to + i * static_cast<std::int64_t>(Item), from + i * inner.stride, Item);
    }
    to += run * static_cast<std::int64_t>(Item);
    col += run;
    count -= run;
  }
}

void SegmentReader::gather(const std::byte* start, std::int64_t col, std::int64_t count, std::byte* to) const {
  if (contiguous_) {
    std::memcpy(to, start + col * static_cast<std::int64_t>(item_), static_cast<std::size_t>(count) * item_);
    return;
  }
  switch (item_) {
  case 1: return gather_items<1>(start, col, count, to);
  case 2: return gather_items<2>(start, col, count, to);
  case 4: return gather_items<4>(start, col, count, to);
  default: return gather_items<8>(start, col, count, to);
  }
}

void SegmentReader::prefetch(const std::byte* start, int rows, std::int64_t col, std::int64_t count) const {
  if (contiguous_ || col_axes_ == 0 || row_axes_ == 0)
    return;
  const Axis inner = col_axis_[static_cast<std::size_t>(col_axes_ - 1)],
             row_axis = row_axis_[static_cast<std::size_t>(row_axes_ - 1)];
  if (inner.stride != static_cast<std::int64_t>(item_))
    return;
  while (count > 0) {
    std::int64_t rest = col / inner.size, offset = col % inner.size * inner.stride;
    for (int axis = col_axes_ - 2; axis >= 0; --axis) {
      const Axis& a = col_axis_[static_cast<std::size_t>(axis)];
      offset += rest % a.size * a.stride;
      rest /= a.size;
    }
    const std::int64_t run = std::min(count, inner.size - col % inner.size);
    for (int r = 0; r < rows; ++r)
      for (std::int64_t byte = 0; byte < run * inner.stride; byte += 64)
        __builtin_prefetch(start + r * row_axis.stride + offset + byte, 0, 2);
    col += run;
    count -= run;
  }
}

} // namespace h3diff::probes
