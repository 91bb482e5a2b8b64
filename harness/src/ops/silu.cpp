#include "ops/ops.hpp"

#include <ATen/ops/silu.h>

namespace h3diff::harness::ops {
namespace {

Tensor aten(const Tensor& x) { return at::silu(x); }

} // namespace

std::span<const Implementation<Silu>> silu_implementations() {
  static const std::vector<Implementation<Silu>> all = {{"torch", {floating_dtypes()}, aten}};
  return all;
}

} // namespace h3diff::harness::ops
