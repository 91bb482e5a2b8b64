#include "ops/ops.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/exp.h>
#include <cmath>

namespace h3diff::harness::ops {
namespace {

// exp(-ln(10000) i / (width / 2)): the quotient is taken after the product, in float32.
Tensor sinusoid(const Tensor& timestep, std::int64_t width) {
  const std::int64_t half = width / 2;
  const Tensor index = at::arange(0, half, timestep.options().dtype(at::kFloat));
  const Tensor frequency = at::exp(index * -std::log(10000.0) / half);
  const Tensor angle = timestep.unsqueeze(1).to(at::kFloat) * frequency.unsqueeze(0);
  const Tensor both = at::cat({angle.cos(), angle.sin()}, -1);
  return width % 2 == 0 ? both : at::constant_pad_nd(both, {0, 1});
}

} // namespace

std::span<const Implementation<TimeEmbed>> time_embed_implementations() {
  static const std::vector<Implementation<TimeEmbed>> all = {{"torch", {}, sinusoid}};
  return all;
}

} // namespace h3diff::harness::ops
