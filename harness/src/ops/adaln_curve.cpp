#include "ops/adaln.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/lerp.h>

namespace h3diff::harness::ops {
namespace {

// Between the two rows of the table that stand on either side of clamp(t) * (rows - 1).
Tensor lerp_f32(const Tensor& timestep, const Tensor& table) {
  const std::int64_t rows = table.size(0);
  const Tensor position = timestep.to(at::kFloat).clamp(0.0, 1.0) * (rows - 1);
  const Tensor below = position.floor().to(at::kLong).clamp_max(rows - 2);
  const Tensor weight = (position - below).unsqueeze(1);
  return at::lerp(table.index_select(0, below), table.index_select(0, below + 1), weight);
}

// The table holds the embedding as the projection reads it: no activation.
Tensor cast_only(const Tensor& t_emb, at::ScalarType projection_dtype) { return t_emb.to(projection_dtype); }

} // namespace

std::span<const Implementation<AdalnCurve>> adaln_curve_implementations() {
  static const Constraint grid = {"table of at least 2 rows",
                                  [](const Context& context) { return context.shape.curve_grid >= 2; }};
  static const std::vector<Implementation<AdalnCurve>> all = {
      {"torch", {floating_dtypes(), grid}, {lerp_f32, {cast_only, adaln_project}}}};
  return all;
}

} // namespace h3diff::harness::ops
