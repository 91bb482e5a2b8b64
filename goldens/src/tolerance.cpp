#include "tolerance.hpp"
#include <fmt/format.h>
#include <cmath>

namespace h3diff::goldens {

using probes::DType;

namespace {

DType coarser(DType a, DType b) { return probes::unit_roundoff(b) > probes::unit_roundoff(a) ? b : a; }

std::string power_of_two(double value) { return value > 0 ? fmt::format("2^{}", std::ilogb(value)) : "0"; }

std::string scaled(double factor, const std::string& text) {
  return factor == 1 ? text : fmt::format("{:g} x {}", factor, text);
}

// What the caller hands in or what is loaded has been rounded at most once.
bool rounded_once(const probes::ProbeInfo& info, std::int32_t step) {
  const bool follows_latents = info.name == "input.video" || info.name == "input.audio";
  return info.weight || (info.op == "input" && !(follows_latents && step > 0));
}

} // namespace

std::int64_t blocks_passed(const probes::ProbeInfo& info, std::int32_t step, const probes::ModelShape& shape) {
  // Timesteps, modulations, rotary tables and the text before packing never see the residual stream.
  if (info.weight || info.space == probes::RowSpace::timesteps || info.space == probes::RowSpace::modulation ||
      info.space == probes::RowSpace::text || info.name.starts_with("rope."))
    return 0;
  const std::int64_t before_this_step = step > 0 ? shape.num_layers : 0;
  if (info.name.starts_with("final.") || info.name.starts_with("pred.") || info.name.starts_with("latent."))
    return before_this_step + shape.num_layers;
  if (info.block < 0)
    return before_this_step;
  const bool block_ends = info.name.ends_with(".out");
  return before_this_step + info.block + (block_ends ? 1 : 0);
}

Tolerance tolerance(const ToleranceContext& context, const probes::ProbeInfo* info, std::int32_t step,
                    const probes::IndexRow& reference, const probes::IndexRow& candidate) {
  DType dtype = coarser(reference.dtype, candidate.dtype);
  if (!probes::is_floating(reference.dtype) && !probes::is_floating(candidate.dtype))
    return {0, fmt::format("0 ({} is exact)", probes::name(dtype))};

  if (info && rounded_once(*info, step)) {
    const double u = probes::unit_roundoff(dtype);
    return {context.factor * u, scaled(context.factor, fmt::format("{} = {:.3g} (one rounding to {})", power_of_two(u),
                                                                   context.factor * u, probes::name(dtype)))};
  }
  if (context.reference_claim)
    dtype = coarser(dtype, *context.reference_claim);
  if (context.candidate_claim)
    dtype = coarser(dtype, *context.candidate_claim);
  const double u = probes::unit_roundoff(dtype);
  const std::int64_t k = info ? blocks_passed(*info, step, context.graph->shape()) : 0;
  const double allowed = context.factor * 8 * u * std::sqrt(1.0 + static_cast<double>(k));
  return {allowed,
          scaled(context.factor, fmt::format("8 x {} x sqrt(1 + {}) = {:.3g} ({}, {} block{} passed)", power_of_two(u),
                                             k, allowed, probes::name(dtype), k, k == 1 ? "" : "s"))};
}

} // namespace h3diff::goldens
