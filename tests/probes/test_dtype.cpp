#include "h3diff/probes/dtype.hpp"
#include "measure_support.hpp"
#include <cmath>
#include <gtest/gtest.h>

using namespace h3diff::probes;

namespace {

// A float of `exponent` and `mantissa` bits, by the definition of the format.
double by_definition(std::uint32_t bits, int exponent, int mantissa, bool infinities) {
  const double sign = (bits >> (exponent + mantissa)) != 0 ? -1 : 1;
  const int e = static_cast<int>(bits >> mantissa) & ((1 << exponent) - 1);
  const auto m = static_cast<double>(bits & ((1u << mantissa) - 1));
  const int bias = (1 << (exponent - 1)) - 1;
  if (e == (1 << exponent) - 1) {
    if (infinities && m == 0)
      return sign * INFINITY;
    if (infinities || m == (1 << mantissa) - 1)
      return NAN;
  }
  if (e == 0)
    return sign * std::ldexp(m, 1 - bias - mantissa);
  return sign * std::ldexp(1 + std::ldexp(m, -mantissa), e - bias);
}

void expect_same(double expected, double actual, std::uint32_t bits) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << std::hex << bits;
    return;
  }
  EXPECT_EQ(expected, actual) << std::hex << bits;
  EXPECT_EQ(std::signbit(expected), std::signbit(actual)) << std::hex << bits;
}

struct Small {
  DType dtype;
  int exponent, mantissa;
  bool infinities;
};
const Small small_formats[] = {{DType::bfloat16, 8, 7, true},
                               {DType::float16, 5, 10, true},
                               {DType::float8_e4m3fn, 4, 3, false},
                               {DType::float8_e5m2, 5, 2, true}};

} // namespace

TEST(DType, NamesAreThoseOfTheFormat) {
  const std::pair<DType, std::string_view> expected[] = {{DType::float64, "float64"},
                                                         {DType::float32, "float32"},
                                                         {DType::bfloat16, "bfloat16"},
                                                         {DType::float16, "float16"},
                                                         {DType::float8_e4m3fn, "float8_e4m3fn"},
                                                         {DType::float8_e5m2, "float8_e5m2"},
                                                         {DType::int8, "int8"},
                                                         {DType::uint8, "uint8"},
                                                         {DType::int32, "int32"},
                                                         {DType::int64, "int64"},
                                                         {DType::boolean, "bool"}};
  for (const auto& [dtype, text] : expected) {
    EXPECT_EQ(name(dtype), text);
    EXPECT_EQ(parse_dtype(text), dtype);
  }
  EXPECT_EQ(std::size(expected), static_cast<std::size_t>(dtype_count));
  EXPECT_FALSE(parse_dtype("float"));
  EXPECT_FALSE(parse_dtype(""));
  EXPECT_FALSE(parse_dtype("BFLOAT16"));
}

TEST(DType, EveryValueOfTheSmallFloats) {
  for (const Small& format : small_formats) {
    const std::uint32_t count = 1u << (8 * item_size(format.dtype));
    for (std::uint32_t bits = 0; bits < count; ++bits) {
      const auto stored = static_cast<std::uint16_t>(bits);
      expect_same(by_definition(bits, format.exponent, format.mantissa, format.infinities),
                  to_double(format.dtype, &stored), bits);
    }
  }
}

// The vectorised conversions that statistics go through, seen through a one-element tensor's minimum.
TEST(DType, MeasuringReadsTheSameValues) {
  for (const Small& format : small_formats) {
    const auto item = item_size(format.dtype);
    const std::uint32_t count = 1u << (8 * item);
    std::vector<std::uint8_t> values(count * item);
    for (std::uint32_t bits = 0; bits < count; ++bits)
      std::memcpy(values.data() + bits * item, &bits, item);
    // A column each, so that every value is measured on its own.
    const auto view = TensorView::contiguous(values.data(), format.dtype, 1, count);
    MeasureOptions options;
    options.columns = true;
    const RowRange all{0, 1};
    const Measurement m = measure(view, {&all, 1}, options);
    for (std::uint32_t bits = 0; bits < count; ++bits) {
      const double expected = by_definition(bits, format.exponent, format.mantissa, format.infinities);
      const ColumnMeasurement& column = m.columns[bits];
      EXPECT_EQ(column.nan, std::isnan(expected) ? 1 : 0) << bits;
      EXPECT_EQ(column.inf, std::isinf(expected) ? 1 : 0) << bits;
      if (std::isfinite(expected)) {
        EXPECT_EQ(column.min, expected) << bits;
        EXPECT_EQ(column.absmax, std::fabs(expected)) << bits;
      }
    }
  }
}

TEST(DType, IntegersAndWideFloats) {
  const std::int8_t i8 = -128;
  const std::uint8_t u8 = 255;
  const std::int32_t i32 = -2147483647 - 1;
  const std::int64_t i64 = -(std::int64_t{1} << 53);
  const float f32 = 0x1p-149f;
  const double f64 = 0x1p-1074;
  EXPECT_EQ(to_double(DType::int8, &i8), -128);
  EXPECT_EQ(to_double(DType::uint8, &u8), 255);
  EXPECT_EQ(to_double(DType::boolean, &u8), 1);
  EXPECT_EQ(to_double(DType::int32, &i32), -2147483648.0);
  EXPECT_EQ(to_double(DType::int64, &i64), -0x1p53);
  EXPECT_EQ(to_double(DType::float32, &f32), 0x1p-149);
  EXPECT_EQ(to_double(DType::float64, &f64), 0x1p-1074);
}

TEST(DType, RoundoffAndSmallestNormal) {
  EXPECT_EQ(unit_roundoff(DType::float64), 0x1p-53);
  EXPECT_EQ(unit_roundoff(DType::float32), 0x1p-24);
  EXPECT_EQ(unit_roundoff(DType::bfloat16), 0x1p-8);
  EXPECT_EQ(unit_roundoff(DType::float16), 0x1p-11);
  EXPECT_EQ(unit_roundoff(DType::float8_e4m3fn), 0x1p-4);
  EXPECT_EQ(unit_roundoff(DType::float8_e5m2), 0x1p-3);
  EXPECT_EQ(unit_roundoff(DType::int32), 0);
  for (const Small& format : small_formats) {
    const auto bits = static_cast<std::uint16_t>(1u << format.mantissa);
    EXPECT_EQ(smallest_normal(format.dtype), to_double(format.dtype, &bits));
  }
  EXPECT_EQ(smallest_normal(DType::float32), static_cast<double>(std::numeric_limits<float>::min()));
  EXPECT_EQ(smallest_normal(DType::float64), std::numeric_limits<double>::min());
}
