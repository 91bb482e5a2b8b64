#include "ops/ops.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>

namespace h3diff::harness::ops {
namespace {

Tensor plain(const Tensor& x, const Tensor& update) { return x + update; }

// Gate and sum are separate roundings. A float32 gate (curve form) widens the sum, which returns to the stream's dtype.
Tensor gated(const Tensor& x, const Tensor& update, const Tensor& gate, const Tensor& row) {
  return (x + gate.index_select(0, row) * update).to(x.scalar_type());
}

} // namespace

std::span<const Implementation<Residual>> residual_implementations() {
  static const std::vector<Implementation<Residual>> all = {{"torch", {floating_dtypes()}, {plain, gated}}};
  return all;
}

} // namespace h3diff::harness::ops
