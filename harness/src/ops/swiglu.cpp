#include "ops/ops.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

namespace h3diff::harness::ops {
namespace {

// silu(gate) is rounded to the compute dtype before the product.
Tensor separate(const Tensor& value, const Tensor& gate) { return value * at::silu(gate); }

} // namespace

std::span<const Implementation<Swiglu>> swiglu_implementations() {
  static const std::vector<Implementation<Swiglu>> all = {{"torch", {floating_dtypes()}, separate}};
  return all;
}

} // namespace h3diff::harness::ops
