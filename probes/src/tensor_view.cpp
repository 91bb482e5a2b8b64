#include "h3diff/probes/tensor_view.hpp"

namespace h3diff::probes {
namespace {

std::int64_t product(const TensorView& view, int begin, int end) {
  std::int64_t total = 1;
  for (int d = begin; d < end; ++d)
    total *= view.sizes[static_cast<std::size_t>(d)];
  return total;
}

} // namespace

std::int64_t TensorView::rows() const { return product(*this, 0, row_dims); }
std::int64_t TensorView::cols() const { return product(*this, row_dims, dims); }

TensorView TensorView::contiguous(const void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.dims = 2;
  view.row_dims = 1;
  view.sizes = {rows, cols};
  view.strides = {cols, 1};
  return view;
}

} // namespace h3diff::probes
