#include "ops/ops.hpp"

#include <ATen/ops/scaled_dot_product_attention.h>

namespace h3diff::harness::ops {
namespace {

// torch's own choice of kernel.
Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto heads_first = [](const Tensor& x) { return x.permute({0, 2, 1, 3}); };
  return heads_first(at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v)));
}

} // namespace

std::span<const Implementation<Attention>> attention_implementations() {
  static const std::vector<Implementation<Attention>> all = {{"sdpa", {floating_dtypes()}, sdpa}};
  return all;
}

} // namespace h3diff::harness::ops
