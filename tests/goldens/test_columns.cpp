#include "columns.hpp"
#include <gtest/gtest.h>
#include <cmath>

namespace h3diff::goldens {
namespace {

using probes::ColumnMeasurement;

ColumnMeasurement column(std::uint64_t digest, double std, double absmax, double rows = 100) {
  ColumnMeasurement out;
  out.digest = {digest, digest};
  out.mean = 0;
  out.std = std;
  out.l2 = std * std::sqrt(rows);
  out.absmax = absmax;
  return out;
}

TEST(StatisticsDistance, IsALowerBoundByTheTriangleInequality) {
  // b = 2a, 100 elements of unit variance: |a - b| = 10.
  EXPECT_NEAR(statistics_distance(100, 10, 0, 1, 3, 20, 0, 2, 6), 10, 1e-9);
  // b = a + 1: the l2 moves less than the mean tells.
  EXPECT_NEAR(statistics_distance(100, 10, 0, 1, 3, std::sqrt(200), 1, 1, 4), 10, 1e-9);
  EXPECT_EQ(statistics_distance(100, 10, 0, 1, 3, 10, 0, 1, 3), 0);
  // Only a peak moved.
  EXPECT_NEAR(statistics_distance(100, 10, 0, 1, 3, 10, 0, 1, 8), 5, 1e-9);
}

TEST(JudgeColumns, FindsTrailingColumns) {
  const std::vector<ColumnMeasurement> a = {column(1, 1, 3), column(2, 1, 2.5), column(3, 0, 0), column(4, 0, 0)};
  const std::vector<ColumnMeasurement> b = {column(1, 1, 3), column(2, 1, 2.5), column(5, 4, 10), column(6, 4, 11)};
  const auto out = judge_columns(a, b, true, 100, 1e-3);
  EXPECT_TRUE(out.known);
  EXPECT_EQ(out.outside, (Ranges{{2, 3}}));
  EXPECT_TRUE(out.trailing);
  EXPECT_EQ(out.bad.absmax, 11);
  EXPECT_NEAR(out.bad.std, 4, 1e-12);
  EXPECT_EQ(out.good.absmax, 3);
}

TEST(JudgeColumns, ARoundedColumnDiffersButIsInside) {
  const auto out =
      judge_columns({column(1, 1, 3), column(2, 1, 3)}, {column(1, 1, 3), column(9, 1.0001, 3)}, true, 100, 1e-3);
  EXPECT_EQ(out.differing, (Ranges{{1, 1}}));
  EXPECT_TRUE(out.outside.empty());
  EXPECT_FALSE(out.trailing);
}

TEST(JudgeColumns, NewColumnsCountAndNothingIsSaidWithoutMeasurements) {
  const auto wider = judge_columns({column(1, 1, 3)}, {column(1, 1, 3), column(2, 5, 9)}, true, 100, 1e-3);
  EXPECT_TRUE(wider.common_bitwise);
  EXPECT_EQ(wider.outside, (Ranges{{1, 1}}));
  EXPECT_TRUE(wider.trailing);
  EXPECT_FALSE(judge_columns({}, {column(1, 1, 3)}, true, 100, 1e-3).known);
}

} // namespace
} // namespace h3diff::goldens
