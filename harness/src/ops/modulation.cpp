#include "ops/ops.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>

namespace h3diff::harness::ops {
namespace {

// Float32 vectors (curve form) widen the expression, which returns to the stream's dtype.
Tensor separate(const Tensor& x, const Tensor& shift, const Tensor& scale, const Tensor& row) {
  return (x * (scale.index_select(0, row) + 1.0) + shift.index_select(0, row)).to(x.scalar_type());
}

} // namespace

std::span<const Implementation<Modulation>> modulation_implementations() {
  static const std::vector<Implementation<Modulation>> all = {{"torch", {floating_dtypes()}, separate}};
  return all;
}

} // namespace h3diff::harness::ops
