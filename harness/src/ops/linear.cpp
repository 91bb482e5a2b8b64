#include "ops/ops.hpp"

#include <ATen/ops/linear.h>
#include <optional>

namespace h3diff::harness::ops {
namespace {

Tensor aten(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
}

} // namespace

std::span<const Implementation<Linear>> linear_implementations() {
  static const std::vector<Implementation<Linear>> all = {{"torch", {floating_dtypes()}, aten}};
  return all;
}

} // namespace h3diff::harness::ops
