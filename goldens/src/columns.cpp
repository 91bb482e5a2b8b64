#include "columns.hpp"
#include <algorithm>
#include <cmath>

namespace h3diff::goldens {

using probes::ColumnMeasurement;

namespace {

ColumnsLook look(const std::vector<ColumnMeasurement>& columns, const std::vector<char>& chosen, double rows) {
  ColumnsLook out;
  double sum = 0, squares = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (!chosen[c])
      continue;
    ++out.columns;
    const auto& column = columns[c];
    if (std::isfinite(column.absmax))
      out.absmax = std::max(out.absmax, column.absmax);
    if (std::isfinite(column.mean))
      sum += column.mean * rows;
    squares += column.l2 * column.l2;
  }
  const double n = static_cast<double>(out.columns) * rows;
  if (n > 0)
    out.std = std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
  return out;
}

Ranges ranges_of(const std::vector<char>& chosen) {
  Ranges ranges;
  for (std::size_t c = 0; c < chosen.size(); ++c) {
    if (!chosen[c])
      continue;
    const std::int64_t at = static_cast<std::int64_t>(c);
    if (!ranges.empty() && ranges.back()[1] + 1 == at)
      ranges.back()[1] = at;
    else
      ranges.push_back({at, at});
  }
  return ranges;
}

} // namespace

double statistics_distance(double count, double l2_a, double mean_a, double std_a, double absmax_a, double l2_b,
                           double mean_b, double std_b, double absmax_b, double slack) {
  // Each is a consequence of the triangle inequality; |a - b|^2 = n (difference of means)^2 + |centred difference|^2.
  double bound = std::fabs(l2_b - l2_a);
  const double centred = std::sqrt(count) * std::hypot(mean_b - mean_a, std_b - std_a);
  if (std::isfinite(centred))
    bound = std::max(bound, centred);
  const double peak = std::fabs(absmax_b - absmax_a);
  if (std::isfinite(peak))
    bound = std::max(bound, peak);
  return std::max(0.0, bound - slack * std::max(std::fabs(l2_a), std::fabs(l2_b)));
}

ColumnsVerdict judge_columns(const std::vector<ColumnMeasurement>& reference,
                             const std::vector<ColumnMeasurement>& candidate, bool dtypes_equal, std::int64_t rows,
                             double allowed, double slack) {
  ColumnsVerdict out;
  if (reference.empty() || candidate.empty())
    return out;
  out.known = true;
  const std::size_t common = std::min(reference.size(), candidate.size());
  out.common = static_cast<std::int64_t>(common);
  const double n = static_cast<double>(rows);

  std::vector<char> differs(candidate.size(), 1), outside(candidate.size(), 1), bitwise(candidate.size(), 0);
  for (std::size_t c = 0; c < common; ++c) {
    const auto& a = reference[c];
    const auto& b = candidate[c];
    if (dtypes_equal && a.digest == b.digest) {
      differs[c] = outside[c] = 0;
      bitwise[c] = 1;
      continue;
    }
    const double distance = statistics_distance(n, a.l2, a.mean, a.std, a.absmax, b.l2, b.mean, b.std, b.absmax, slack);
    const bool lost = b.nan > a.nan || b.inf > a.inf;
    outside[c] = lost || distance > allowed * a.l2;
  }
  out.common_bitwise = std::all_of(bitwise.begin(), bitwise.begin() + static_cast<std::ptrdiff_t>(common),
                                   [](char b) { return b != 0; });
  out.differing = ranges_of(differs);
  out.outside = ranges_of(outside);
  out.bad = look(candidate, outside, n);
  out.good = look(candidate, bitwise, n);
  out.trailing = out.outside.size() == 1 && out.outside[0][0] > 0 &&
                 out.outside[0][1] + 1 == static_cast<std::int64_t>(candidate.size()) &&
                 out.good.columns == out.outside[0][0];
  return out;
}

} // namespace h3diff::goldens
