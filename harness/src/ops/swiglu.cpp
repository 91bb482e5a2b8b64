#include "ops/ops.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

namespace h3diff::harness::ops {
namespace {

// silu(gate) is rounded to the compute dtype before the product.
Tensor separate(const Tensor& value_gate) {
  const std::int64_t width = value_gate.size(-1) / 2;
  return value_gate.narrow(-1, 0, width) * at::silu(value_gate.narrow(-1, width, width));
}

} // namespace

std::span<const Implementation<Swiglu>> swiglu_implementations() {
  static const std::vector<Implementation<Swiglu>> all = {{"separate", {floating_dtypes()}, separate}};
  return all;
}

} // namespace h3diff::harness::ops
