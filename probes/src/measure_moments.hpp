// Count, mean and sum of squared deviations, combined piece by piece (Chan, Golub and LeVeque): no cancellation
// however large the mean is against the deviation.
#pragma once
#include <cstdint>

namespace h3diff::probes {

struct Moments {
  std::int64_t count = 0;
  double sum = 0, mean = 0, deviations = 0;

  void add(const Moments& other) {
    if (other.count == 0)
      return;
    if (count == 0) {
      *this = other;
      return;
    }
    const auto n = static_cast<double>(count), m = static_cast<double>(other.count);
    const double delta = other.mean - mean;
    deviations += other.deviations + delta * delta * (n * m / (n + m));
    mean += delta * (m / (n + m));
    sum += other.sum;
    count += other.count;
  }
};

// Moments of a small piece from its plain sums. `cancelled` is called for the sum of squared deviations from the
// mean given, corrected, where the plain sums would lose more than 10 bits.
template <class Deviations>
Moments piece_moments(std::int64_t count, double sum, double squares, const Deviations& deviations_from) {
  Moments out;
  if (count == 0)
    return out;
  const auto n = static_cast<double>(count);
  out.count = count;
  out.sum = sum;
  out.mean = sum / n;
  out.deviations = squares - sum * out.mean;
  if (out.deviations < squares * 0x1p-10)
    out.deviations = deviations_from(out.mean);
  return out;
}

// Sum of (x - mean)^2, less what the mean's own rounding adds. Feed it the finite elements in a fixed order.
class DeviationSum {
public:
  explicit DeviationSum(double mean) : mean_(mean) {}
  void add(double x) {
    const double d = x - mean_;
    squares_ += d * d;
    sum_ += d;
    ++count_;
  }
  double value() const {
    if (count_ == 0)
      return 0;
    const double corrected = squares_ - sum_ * sum_ / static_cast<double>(count_);
    return corrected > 0 ? corrected : 0;
  }

private:
  double mean_, squares_ = 0, sum_ = 0;
  std::int64_t count_ = 0;
};

} // namespace h3diff::probes
