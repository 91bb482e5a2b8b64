#include "ops/ops.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>

namespace h3diff::harness::ops {
namespace {

Tensor inverse_frequencies(std::int64_t per_axis, double theta) {
  const Tensor exponent = at::arange(0, 2 * per_axis, 2, at::kFloat) / (2 * per_axis);
  return at::pow(theta, exponent).reciprocal();
}

// The angles of the three axes side by side, twice, so that channel i pairs with i + rotary width / 2.
RopeTable table(const Tensor& position_ids, const Tensor& inverse) {
  const Tensor angles = position_ids.to(at::kFloat).unsqueeze(-1) * inverse.view({1, 1, -1});
  const Tensor half = angles.flatten(1);
  const Tensor all = at::cat({half, half}, -1);
  return {all.cos(), all.sin()};
}

Tensor split_half(const Tensor& heads, const RopeTable& rope) {
  const std::int64_t width = rope.cos.size(-1);
  const Tensor rotary = heads.narrow(-1, 0, width);
  const Tensor passed = heads.narrow(-1, width, heads.size(-1) - width);
  const Tensor cos = rope.cos.to(heads.scalar_type()).unsqueeze(0).unsqueeze(2);
  const Tensor sin = rope.sin.to(heads.scalar_type()).unsqueeze(0).unsqueeze(2);
  const Tensor turned = at::cat({rotary.narrow(-1, width / 2, width / 2).neg(), rotary.narrow(-1, 0, width / 2)}, -1);
  return at::cat({rotary * cos + turned * sin, passed}, -1).contiguous();
}

} // namespace

std::span<const Implementation<Rope>> rope_implementations() {
  static const Constraint fits = {"rotary width at most the head's", [](const Context& context) {
                                    return context.shape.rotary_dim() <= context.shape.attention_head_dim;
                                  }};
  static const std::vector<Implementation<Rope>> all = {
      {"torch", {floating_dtypes(), fits}, {inverse_frequencies, table, split_half}}};
  return all;
}

} // namespace h3diff::harness::ops
