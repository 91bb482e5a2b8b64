// The sigma grids, in float32 exactly as diffusers' MiniMaxH3Scheduler builds them:
// linspace(1, 0, N + 1) through s*u / (1 + (s - 1)*u), consecutive duplicates collapsed.
#pragma once
#include <cstdint>
#include <vector>

namespace h3diff::cases {

struct Schedule {
  std::vector<float> sigmas;    // N + 1, last is 0
  std::vector<float> timesteps; // N, 1 - sigma
};
// `steps` >= 1 evaluations. Collapsing can leave fewer: callers count `timesteps`.
Schedule make_schedule(int steps, double shift);

} // namespace h3diff::cases
