#include "dispatcher.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace h3diff::harness {
namespace {

enum class Needed { always, with_time_embedder, with_curve };

bool needed(Needed when, const ops::Context& context) {
  return when == Needed::always || (when == Needed::with_curve) == context.shape.curve();
}

// Calls visit(op name, member, implementations, when) for every op there is.
template <class Self, class Visit> void each_op(Self& d, Visit&& visit) {
  visit("linear", d.linear, ops::linear_implementations(), Needed::always);
  visit("attn_qkv", d.attn_qkv, ops::attn_qkv_implementations(), Needed::always);
  visit("fc1", d.fc1, ops::fc1_implementations(), Needed::always);
  visit("rms_norm", d.rms_norm, ops::rms_norm_implementations(), Needed::always);
  visit("rope", d.rope, ops::rope_implementations(), Needed::always);
  visit("attention", d.attention, ops::attention_implementations(), Needed::always);
  visit("adaln", d.adaln, ops::adaln_implementations(), Needed::with_time_embedder);
  visit("adaln_curve", d.adaln_curve, ops::adaln_curve_implementations(), Needed::with_curve);
  visit("swiglu", d.swiglu, ops::swiglu_implementations(), Needed::always);
  visit("residual", d.residual, ops::residual_implementations(), Needed::always);
  visit("modulation", d.modulation, ops::modulation_implementations(), Needed::always);
  visit("time_embed", d.time_embed, ops::time_embed_implementations(), Needed::with_time_embedder);
  visit("silu", d.silu, ops::silu_implementations(), Needed::with_time_embedder);
  visit("pack", d.pack, ops::pack_implementations(), Needed::always);
  visit("euler", d.euler, ops::euler_implementations(), Needed::always);
}

} // namespace

Result<Dispatcher> Dispatcher::build(const cases::Profile& profile, const ops::Context& context) {
  Dispatcher dispatcher;
  std::vector<std::string> known;
  Result<void> outcome;
  each_op(dispatcher, [&](const char* op, auto& member, auto implementations, Needed when) {
    known.emplace_back(op);
    if (!outcome || !needed(when, context))
      return;
    const auto declared = profile.ops.find(op);
    if (declared == profile.ops.end()) {
      outcome = usage_error(fmt::format("profile {} picks no implementation of op {}", profile.name, op));
      return;
    }
    auto selected = ops::select(op, implementations, declared->second, context);
    if (!selected) {
      outcome = Error{selected.error().code, fmt::format("profile {}: {}", profile.name, selected.error().message)};
      return;
    }
    member = *std::move(selected);
  });
  for (const auto& [op, implementation] : profile.ops)
    if (outcome && std::find(known.begin(), known.end(), op) == known.end())
      outcome = usage_error(fmt::format("profile {} names an op that is not there: {}", profile.name, op));
  if (!outcome)
    return outcome.error();
  return dispatcher;
}

std::vector<probes::DispatchRow> Dispatcher::table() const {
  std::vector<probes::DispatchRow> rows;
  each_op(*this, [&](const char*, const auto& member, const auto&, Needed) {
    if (!member.row().op.empty())
      rows.push_back(member.row());
  });
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.op < b.op; });
  return rows;
}

} // namespace h3diff::harness
