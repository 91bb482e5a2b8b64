#include "ops/ops.hpp"

#include <ATen/ops/rms_norm.h>

namespace h3diff::harness::ops {
namespace {

Tensor aten(const Tensor& x, const Tensor& weight, double eps) { return at::rms_norm(x, weight.sizes(), weight, eps); }

} // namespace

std::span<const Implementation<RmsNorm>> rms_norm_implementations() {
  static const std::vector<Implementation<RmsNorm>> all = {{"torch", {floating_dtypes()}, aten}};
  return all;
}

} // namespace h3diff::harness::ops
