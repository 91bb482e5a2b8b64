// Exactly one implementation per op, chosen by a profile; counts what ran.
#pragma once
#include "h3diff/cases/profile.hpp"
#include "ops/ops.hpp"
#include <vector>

namespace h3diff::harness {

struct Dispatcher {
  ops::Op<ops::Linear> linear;
  ops::Op<ops::AttnQkv> attn_qkv;
  ops::Op<ops::Fc1> fc1;
  ops::Op<ops::RmsNorm> rms_norm;
  ops::Op<ops::Rope> rope;
  ops::Op<ops::Attention> attention;
  ops::Op<ops::Adaln> adaln;            // the time-embedder form
  ops::Op<ops::AdalnCurve> adaln_curve; // the curve form
  ops::Op<ops::Swiglu> swiglu;
  ops::Op<ops::Residual> residual;
  ops::Op<ops::Modulation> modulation;
  ops::Op<ops::TimeEmbed> time_embed; // the time-embedder form
  ops::Op<ops::Silu> silu;            // the time-embedder form
  ops::Op<ops::Pack> pack;
  ops::Op<ops::Euler> euler;

  // usage error: the profile names an op or implementation that is not there, or leaves a needed op out;
  // environment error: a constraint does not hold. Ops of the other AdaLN form are left out.
  static Result<Dispatcher> build(const cases::Profile&, const ops::Context&);
  std::vector<probes::DispatchRow> table() const; // the ops of this run, by name
};

} // namespace h3diff::harness
