#include "locate.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <cmath>

namespace h3diff::goldens {

namespace {

constexpr std::size_t most_ranges = 64; // later ones are merged into the last

void append(Ranges& ranges, std::int64_t first, std::int64_t last) {
  if (!ranges.empty() && (ranges.back()[1] + 1 == first || ranges.size() == most_ranges))
    ranges.back()[1] = last;
  else
    ranges.push_back({first, last});
}

Ranges unless_all(Ranges ranges, std::int64_t count) {
  if (ranges.size() == 1 && ranges[0][0] == 0 && ranges[0][1] == count - 1)
    return {};
  return ranges;
}

} // namespace

std::string in_words(const Ranges& ranges) {
  std::string text;
  const std::size_t shown = std::min<std::size_t>(ranges.size(), 4);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0)
      text += i + 1 == ranges.size() ? " and " : ", ";
    const auto [first, last] = ranges[i];
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  if (shown < ranges.size())
    text += fmt::format(" and {} more ranges", ranges.size() - shown);
  return text;
}

GroupNorms::GroupNorms(std::int64_t count, std::int64_t most) : count_(count), width_((count + most - 1) / most) {
  width_ = std::max<std::int64_t>(1, width_);
  const std::size_t groups = static_cast<std::size_t>((count + width_ - 1) / width_);
  difference_.resize(groups);
  reference_.resize(groups);
}

Ranges GroupNorms::outside(double allowed) const {
  Ranges ranges;
  double mean = 0;
  for (const double square : reference_)
    mean += square / static_cast<double>(reference_.size());
  for (std::size_t g = 0; g < difference_.size(); ++g) {
    // Against at least a tenth of the usual norm, so that a nearly empty row's rounding does not count.
    const double base = std::max(reference_[g], 0.01 * mean);
    if (!(difference_[g] > allowed * allowed * base))
      continue;
    const std::int64_t first = static_cast<std::int64_t>(g) * width_;
    append(ranges, first, std::min(count_, first + width_) - 1);
  }
  return unless_all(std::move(ranges), count_);
}

Ranges bands_outside(const std::array<float, 16>& reference, const std::array<float, 16>& candidate, std::int64_t count,
                     double allowed) {
  Ranges ranges;
  for (std::int64_t b = 0; b < 16; ++b) {
    const auto edge = [count](std::int64_t at) { return at * (count / 16) + at * (count % 16) / 16; }; // no overflow
    const std::int64_t first = edge(b), last = edge(b + 1) - 1;
    if (last < first)
      continue;
    const double before = reference[b], after = candidate[b];
    const double rounding = 0x1p-23 * (std::fabs(before) + std::fabs(after)); // bands are stored in float32
    if (std::fabs(after - before) > allowed * std::fabs(before) + rounding)
      append(ranges, first, last);
  }
  return unless_all(std::move(ranges), count);
}

} // namespace h3diff::goldens
