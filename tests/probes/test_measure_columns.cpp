// A column's measurement is that of the column as a [rows, 1] tensor.
#include "measure_support.hpp"
#include <cmath>
#include <gtest/gtest.h>

using namespace h3diff::probes;
using namespace h3diff::probes::test;

namespace {

void expect_columns(const Bytes& data, DType dtype, std::int64_t rows, std::int64_t cols) {
  MeasureOptions options;
  options.columns = true;
  options.threads = 2;
  const auto ranges = all_rows(rows);
  const TensorView view = TensorView::contiguous(data.data(), dtype, rows, cols);
  const Measurement m = measure(view, ranges, options);
  ASSERT_EQ(m.columns.size(), static_cast<std::size_t>(cols));
  for (std::int64_t c = 0; c < cols; ++c) {
    SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(rows) + "x" + std::to_string(cols) + " column " +
                 std::to_string(c));
    TensorView column =
        TensorView::contiguous(data.data() + c * static_cast<std::int64_t>(item_size(dtype)), dtype, rows, 1);
    column.strides = {cols, 1};
    const Measurement one = measure(column, ranges, {});
    const ColumnMeasurement& actual = m.columns[static_cast<std::size_t>(c)];
    const Statistics& s = one.statistics;
    EXPECT_EQ(actual.column, c);
    EXPECT_EQ(actual.digest, one.digest);
    EXPECT_EQ(actual.zeros, s.zeros);
    EXPECT_EQ(actual.nan, s.nan);
    EXPECT_EQ(actual.inf, s.inf);
    EXPECT_NEAR(actual.l2, s.l2, 1e-12 * s.l2);
    if (std::isnan(s.mean)) {
      EXPECT_TRUE(std::isnan(actual.mean) && std::isnan(actual.std) && std::isnan(actual.min) &&
                  std::isnan(actual.max) && std::isnan(actual.absmax));
      continue;
    }
    EXPECT_NEAR(actual.mean, s.mean, 1e-12 * s.l2);
    EXPECT_NEAR(actual.std, s.std, 1e-10 * s.std + 1e-15 * s.l2);
    EXPECT_EQ(actual.min, s.min);
    EXPECT_EQ(actual.max, s.max);
    EXPECT_EQ(actual.absmax, s.absmax);
  }
}

} // namespace

TEST(Columns, AreMeasuredAsTensorsOfTheirOwn) {
  std::uint64_t seed = 300;
  for (const DType dtype : all_dtypes())
    for (const std::int64_t rows : {1, 3, 64, 66, 200})
      for (const std::int64_t cols : {1, 8, 13, 128, 150}) {
        const bool any_bits = dtype != DType::float64;
        expect_columns(random_tensor(dtype, rows * cols, ++seed, any_bits), dtype, rows, cols);
      }
}

TEST(Columns, NothingFiniteInOneColumn) {
  std::vector<float> values(70 * 20, 1.0f);
  for (std::size_t r = 0; r < 70; ++r)
    values[r * 20 + 3] = r % 2 == 0 ? NAN : -INFINITY;
  Bytes data(values.size() * 4);
  std::memcpy(data.data(), values.data(), data.size());
  expect_columns(data, DType::float32, 70, 20);
}

TEST(Columns, NoRowsOrNoColumns) {
  MeasureOptions options;
  options.columns = true;
  const Measurement no_rows = measure(TensorView::contiguous(nullptr, DType::float32, 0, 3), {}, options);
  ASSERT_EQ(no_rows.columns.size(), 3u);
  EXPECT_EQ(no_rows.columns[2].digest, digest_bytes(nullptr, 0, 4));
  EXPECT_TRUE(std::isnan(no_rows.columns[0].mean));
  EXPECT_EQ(no_rows.columns[0].l2, 0);
  const auto all = all_rows(3);
  EXPECT_TRUE(measure(TensorView::contiguous(nullptr, DType::float32, 3, 0), all, options).columns.empty());
}

// A padded AdaLN: the columns that carry the checkpoint's values are bitwise the reference's.
TEST(Columns, PaddingLeavesTheOtherColumnsAlone) {
  const std::int64_t rows = 300;
  const Bytes data = random_tensor(DType::bfloat16, rows * 16, 17);
  Bytes padded = data;
  for (std::int64_t r = 0; r < rows; ++r)
    std::memset(padded.data() + (r * 16 + 8) * 2, 0, 16);
  MeasureOptions options;
  options.columns = true;
  const auto ranges = all_rows(rows);
  const auto a = measure(TensorView::contiguous(data.data(), DType::bfloat16, rows, 16), ranges, options).columns;
  const auto b = measure(TensorView::contiguous(padded.data(), DType::bfloat16, rows, 16), ranges, options).columns;
  for (std::size_t c = 0; c < 16; ++c)
    EXPECT_EQ(a[c].digest == b[c].digest, c < 8) << c;
  EXPECT_EQ(b[12].zeros, rows);
}
