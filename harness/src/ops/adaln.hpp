// What the two forms of AdaLN share.
#pragma once
#include "ops/ops.hpp"

namespace h3diff::harness::ops {

std::vector<Tensor> adaln_project(const Tensor& input, const Tensor& weight, const Tensor& bias, std::int64_t hidden,
                                  std::int64_t parts);

} // namespace h3diff::harness::ops
