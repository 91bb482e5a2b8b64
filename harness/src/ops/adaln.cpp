#include "ops/adaln.hpp"

#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

namespace h3diff::harness::ops {
namespace {

// The activation in the time embedding's own precision; only its result is rounded to the projection's dtype.
Tensor silu_then_cast(const Tensor& t_emb, at::ScalarType projection_dtype) {
  return at::silu(t_emb).to(projection_dtype);
}

} // namespace

// The projection's columns are [tags][parts][hidden] for a block, [parts][hidden] for the final layer: a view of
// `parts * hidden` columns has a row per (timestep, tag).
std::vector<Tensor> adaln_project(const Tensor& input, const Tensor& weight, const Tensor& bias, std::int64_t hidden,
                                  std::int64_t parts) {
  return at::linear(input, weight, bias).view({-1, parts * hidden}).chunk(parts, -1);
}

std::span<const Implementation<Adaln>> adaln_implementations() {
  static const std::vector<Implementation<Adaln>> all = {
      {"torch", {floating_dtypes()}, {silu_then_cast, adaln_project}}};
  return all;
}

} // namespace h3diff::harness::ops
