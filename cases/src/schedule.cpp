#include "h3diff/cases/schedule.hpp"
#include <cmath>

namespace h3diff::cases {

Schedule make_schedule(int steps, double shift) {
  // torch's float32 linspace from both ends towards the middle. Its AVX2 and AVX-512 builds contract
  // start + step * i to a fused multiply-add, hence fma here; its scalar build does not and differs in places.
  const int points = steps + 1;
  const float step = -1.0f / static_cast<float>(points - 1);
  const auto numerator = static_cast<float>(shift), denominator = static_cast<float>(shift - 1.0);
  Schedule schedule;
  for (int i = 0; i < points; ++i) {
    const float u = i < points / 2 ? std::fma(step, static_cast<float>(i), 1.0f)
                                   : std::fma(-step, static_cast<float>(points - 1 - i), 0.0f);
    const float scaled = denominator * u;
    const float sigma = numerator * u / (1.0f + scaled);
    // A large shift makes neighbours near 1 equal; diffusers collapses them.
    if (schedule.sigmas.empty() || schedule.sigmas.back() != sigma)
      schedule.sigmas.push_back(sigma);
  }
  for (std::size_t i = 0; i + 1 < schedule.sigmas.size(); ++i)
    schedule.timesteps.push_back(1.0f - schedule.sigmas[i]);
  return schedule;
}

} // namespace h3diff::cases
