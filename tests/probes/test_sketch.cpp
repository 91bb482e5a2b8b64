// The sketch against a naive implementation written from docs/dump-format.md section 9.
#include "measure_support.hpp"
#include <cmath>
#include <gtest/gtest.h>

using namespace h3diff::probes;
using namespace h3diff::probes::test;

namespace {

std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  x ^= x >> 16;
  return x;
}

std::vector<double> naive(const std::vector<double>& values, std::int64_t rows, std::int64_t cols) {
  std::vector<double> sketch(256, 0.0);
  const std::int64_t turn = rows >= 512 ? 8 : 1;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double value = values[static_cast<std::size_t>(r * cols + c)];
      if (!std::isfinite(value))
        continue;
      const auto i = static_cast<std::uint32_t>(r / turn), j = static_cast<std::uint32_t>(c / 256);
      const std::uint32_t h = mix(i * 0x9E3779B1u + j * 0x85EBCA6Bu + 0x3C6EF372u) >> 27;
      const std::uint32_t bucket =
          (static_cast<std::uint32_t>(c / 8 % 32) ^ h) + 32 * static_cast<std::uint32_t>((c + r) % 8);
      const std::uint32_t word = mix(mix(static_cast<std::uint32_t>(r / 4) * 0x9E3779B1u + 0x243F6A88u) ^
                                     (static_cast<std::uint32_t>(c / 8) * 0x85EBCA6Bu + 0x13198A2Eu));
      const bool negative = (word >> (r % 4 * 8 + c % 8) & 1) != 0;
      sketch[bucket] += negative ? -value : value;
    }
  return sketch;
}

std::vector<double> values_of(const Bytes& data, DType dtype) {
  const std::size_t item = item_size(dtype);
  std::vector<double> values(data.size() / item);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = to_double(dtype, data.data() + i * item);
  return values;
}

std::vector<double> sketch_of(const Bytes& data, DType dtype, std::int64_t rows, std::int64_t cols, int k = 256) {
  MeasureOptions options;
  options.sketch_k = k;
  return measure(TensorView::contiguous(data.data(), dtype, rows, cols), all_rows(rows), options).sketch;
}

std::vector<float> stored(const std::vector<double>& sketch) { return {sketch.begin(), sketch.end()}; }

} // namespace

TEST(Sketch, AgreesWithTheSpecification) {
  std::uint64_t seed = 400;
  for (const DType dtype : all_dtypes())
    for (const std::int64_t rows : {1, 3, 8, 67, 511, 512, 515})
      for (const std::int64_t cols : {1, 7, 8, 100, 256, 257, 530}) {
        if (rows * cols > 60000 && dtype != DType::float32 && dtype != DType::float64)
          continue;
        const Bytes data = random_tensor(dtype, rows * cols, ++seed, dtype != DType::float64 && dtype != DType::int64);
        const auto values = values_of(data, dtype);
        double l2 = 0;
        for (const double value : values)
          l2 += std::isfinite(value) ? value * value : 0;
        l2 = std::sqrt(l2);
        const auto expected = naive(values, rows, cols), actual = sketch_of(data, dtype, rows, cols);
        for (std::size_t b = 0; b < 256; ++b)
          EXPECT_NEAR(actual[b], expected[b], 1e-12 * l2)
              << name(dtype) << " " << rows << "x" << cols << " bucket " << b;
      }
}

// One element each, so that the bucket and the sign are seen exactly.
TEST(Sketch, PlacesEveryElementWhereTheSpecificationSays) {
  Random random(20);
  for (int trial = 0; trial < 600; ++trial) {
    const std::int64_t rows = trial % 2 == 0 ? 1 + random.below(60) : 512 + random.below(60),
                       cols = 1 + random.below(600);
    const std::int64_t row = random.below(rows), col = random.below(cols);
    std::vector<double> values(static_cast<std::size_t>(rows * cols), 0.0);
    values[static_cast<std::size_t>(row * cols + col)] = 1;
    const auto expected = naive(values, rows, cols);
    Bytes data(values.size());
    data[static_cast<std::size_t>(row * cols + col)] = 1;
    const auto actual = sketch_of(data, DType::int8, rows, cols);
    for (std::size_t b = 0; b < 256; ++b)
      ASSERT_EQ(actual[b], expected[b]) << rows << "x" << cols << " " << row << "," << col;
  }
}

TEST(Sketch, IsLinear) {
  const std::int64_t rows = 600, cols = 300;
  Random random(21);
  std::vector<float> a(static_cast<std::size_t>(rows * cols)), b(a.size()), difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) { // multiples of 2^-10, so that nothing rounds
    a[i] = static_cast<float>(random.below(4096) - 2048) / 1024.0f;
    b[i] = static_cast<float>(random.below(4096) - 2048) / 1024.0f;
    difference[i] = a[i] - b[i];
  }
  const auto sketch = [&](const std::vector<float>& values) {
    return measure(TensorView::contiguous(values.data(), DType::float32, rows, cols), all_rows(rows), {}).sketch;
  };
  const auto sa = sketch(a), sb = sketch(b), sd = sketch(difference);
  for (std::size_t i = 0; i < 256; ++i)
    EXPECT_EQ(sa[i] - sb[i], sd[i]);
}

TEST(Sketch, FoldsAreSumsOfBucketsModuloK) {
  const Bytes data = random_tensor(DType::float32, 70 * 90, 22);
  const auto whole = sketch_of(data, DType::float32, 70, 90);
  for (const std::size_t k : {64u, 128u}) {
    const auto folded = sketch_of(data, DType::float32, 70, 90, static_cast<int>(k));
    ASSERT_EQ(folded.size(), k);
    for (std::size_t b = 0; b < k; ++b) {
      double sum = 0;
      for (std::size_t i = b; i < 256; i += k)
        sum += whole[i];
      EXPECT_EQ(folded[b], sum);
    }
  }
}

TEST(Sketch, NonFiniteValuesEnterAsZero) {
  Bytes data = random_tensor(DType::float32, 40 * 40, 23);
  Bytes zeroed = data;
  Random random(24);
  for (int i = 0; i < 50; ++i) {
    const auto at = static_cast<std::size_t>(random.below(1600)) * 4;
    const float bad = i % 3 == 0 ? NAN : (i % 3 == 1 ? INFINITY : -INFINITY), zero = 0;
    std::memcpy(data.data() + at, &bad, 4);
    std::memcpy(zeroed.data() + at, &zero, 4);
  }
  EXPECT_EQ(sketch_of(data, DType::float32, 40, 40), sketch_of(zeroed, DType::float32, 40, 40));
}

TEST(SketchDistance, OfEqualSketchesIsZeroWithinTheirRounding) {
  const auto sketch = stored(sketch_of(random_tensor(DType::float32, 3000, 25), DType::float32, 50, 60));
  const SketchDistance d = sketch_distance(sketch, sketch);
  EXPECT_EQ(d.squared, 0);
  double norm = 0;
  for (const float b : sketch)
    norm += static_cast<double>(b) * static_cast<double>(b);
  EXPECT_GT(d.error, 0);
  EXPECT_LE(d.error, 0x1p-45 * norm);
}

TEST(SketchDistance, IsTheFormulaOfTheFormat) {
  const std::vector<float> a{3, 0, -1, 2}, b{1, 0, 1, 2}; // differences 2, 0, -2, 0
  const SketchDistance d = sketch_distance(a, b);
  EXPECT_EQ(d.squared, 8);
  const double bound = 3 * std::sqrt(2.0 * (16 + 16));
  EXPECT_GE(d.error, bound);
  EXPECT_NEAR(d.error, bound, 1e-5);
}

TEST(SketchDistance, SketchesOfTwoSizesAreComparedAtTheSmaller) {
  const Bytes x = random_tensor(DType::float32, 80 * 90, 26), y = random_tensor(DType::float32, 80 * 90, 27);
  const auto x256 = stored(sketch_of(x, DType::float32, 80, 90)),
             y64 = stored(sketch_of(y, DType::float32, 80, 90, 64));
  const auto x64 = stored(sketch_of(x, DType::float32, 80, 90, 64));
  EXPECT_NEAR(sketch_distance(x256, y64).squared, sketch_distance(x64, y64).squared,
              1e-5 * sketch_distance(x64, y64).squared);
  EXPECT_EQ(sketch_distance({}, y64).squared, 0);
}
