#include "ops/ops.hpp"

namespace h3diff::harness::ops {

// The products themselves are `linear`'s; a kernel may round differently at the edges of another shape, so the
// shapes are a choice of their own.

std::span<const Implementation<AttnQkv>> attn_qkv_implementations() {
  static const std::vector<Implementation<AttnQkv>> all = {{"split", {}, {false}}, {"flat", {}, {true}}};
  return all;
}

std::span<const Implementation<Fc1>> fc1_implementations() {
  static const std::vector<Implementation<Fc1>> all = {{"value_gate", {}, {false}}, {"gate_value", {}, {true}}};
  return all;
}

} // namespace h3diff::harness::ops
