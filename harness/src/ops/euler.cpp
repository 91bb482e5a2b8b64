#include "ops/ops.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsub.h>

namespace h3diff::harness::ops {
namespace {

// Two sources of sigma, as in the reference: x0 uses 1 - t, the blend the grid. For sigma below 0.5 the float32
// round trip 1 - (1 - sigma) is not exact.
Tensor x0_blend(const Tensor& velocity, const Tensor& sample, float timestep, float sigma, float sigma_next) {
  const at::ScalarType own = sample.scalar_type();
  const at::ScalarType wide = own == at::kHalf || own == at::kBFloat16 ? at::kFloat : own;
  const auto scalar = [&](float value, at::ScalarType type) {
    return at::full({}, value, sample.options().dtype(at::kFloat)).to(type);
  };
  const Tensor sigma_of_t = at::rsub(scalar(timestep, own), 1).view({1, 1});
  const Tensor denoised = sample + sigma_of_t * velocity.to(at::kFloat);
  const Tensor ratio = scalar(sigma_next, wide) / scalar(sigma, wide);
  const Tensor next = ratio * sample.to(wide) + at::rsub(ratio, 1.0) * denoised.to(wide);
  return next.to(own);
}

} // namespace

std::span<const Implementation<Euler>> euler_implementations() {
  static const std::vector<Implementation<Euler>> all = {{"torch", {}, x0_blend}};
  return all;
}

} // namespace h3diff::harness::ops
