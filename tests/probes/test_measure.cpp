// Statistics against naive long double sums, and the invariance of whole measurements.
#include "measure_support.hpp"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace h3diff::probes;
using namespace h3diff::probes::test;

namespace {

struct Naive {
  std::int64_t count = 0, finite = 0, zeros = 0, nan = 0, inf = 0, subnormal = 0;
  long double mean = 0, std = 0, l2 = 0;
  double min = NAN, max = NAN, absmax = NAN;
  std::int64_t absmax_row = -1, absmax_col = -1;
  long double bands[16] = {}, groups[16] = {};
};

Naive naive(const Bytes& data, DType dtype, std::int64_t rows, std::int64_t cols) {
  Naive out;
  const auto item = static_cast<std::int64_t>(item_size(dtype));
  const auto at = [&](std::int64_t r, std::int64_t c) { return to_double(dtype, data.data() + (r * cols + c) * item); };
  long double sum = 0, squares = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double x = at(r, c);
      ++out.count;
      if (std::isnan(x))
        ++out.nan;
      else if (std::isinf(x))
        ++out.inf;
      else {
        ++out.finite;
        out.zeros += x == 0;
        out.subnormal += x != 0 && std::fabs(x) < smallest_normal(dtype);
        sum += x;
        const long double square = static_cast<long double>(x) * x;
        squares += square;
        if (!(out.min <= x))
          out.min = x;
        if (!(out.max >= x))
          out.max = x;
        if (!(out.absmax >= std::fabs(x))) {
          out.absmax = std::fabs(x);
          out.absmax_row = r;
          out.absmax_col = c;
        }
        for (std::int64_t b = 0; b < 16; ++b) {
          if (r >= b * rows / 16 && r < (b + 1) * rows / 16)
            out.bands[b] += square;
          if (c >= b * cols / 16 && c < (b + 1) * cols / 16)
            out.groups[b] += square;
        }
      }
    }
  out.l2 = std::sqrt(squares);
  if (out.finite > 0) {
    out.mean = sum / static_cast<long double>(out.finite);
    long double deviations = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        if (const double x = at(r, c); std::isfinite(x))
          deviations += (x - out.mean) * (x - out.mean);
    out.std = std::sqrt(deviations / static_cast<long double>(out.finite));
  }
  return out;
}

Measurement measured(const TensorView& view, int threads = 1, int k = 256) {
  MeasureOptions options;
  options.threads = threads;
  options.sketch_k = k;
  const RowRange all{0, view.rows()};
  return measure(view, {&all, 1}, options);
}

// 1e-12 of the l2 (for the mean, of the root mean square), as the format promises; std besides relative to itself.
void expect_statistics(const Naive& expected, const Statistics& s, const std::string& where) {
  SCOPED_TRACE(where);
  EXPECT_EQ(s.count, expected.count);
  EXPECT_EQ(s.zeros, expected.zeros);
  EXPECT_EQ(s.nan, expected.nan);
  EXPECT_EQ(s.inf, expected.inf);
  EXPECT_EQ(s.subnormal, expected.subnormal);
  const auto l2 = static_cast<double>(expected.l2);
  EXPECT_NEAR(s.l2, l2, 1e-12 * l2);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_FLOAT_EQ(s.row_bands[i], static_cast<float>(std::sqrt(expected.bands[i]))) << "band " << i;
    EXPECT_FLOAT_EQ(s.col_groups[i], static_cast<float>(std::sqrt(expected.groups[i]))) << "group " << i;
  }
  if (expected.finite == 0) {
    for (const double undefined : {s.mean, s.std, s.min, s.max, s.absmax})
      EXPECT_TRUE(std::isnan(undefined));
    EXPECT_EQ(s.l2, 0);
    EXPECT_EQ(s.absmax_row, -1);
    EXPECT_EQ(s.absmax_col, -1);
    return;
  }
  const double rms = l2 / std::sqrt(static_cast<double>(expected.finite));
  EXPECT_NEAR(s.mean, static_cast<double>(expected.mean), 1e-12 * rms);
  EXPECT_NEAR(s.std, static_cast<double>(expected.std), 1e-10 * static_cast<double>(expected.std) + 1e-15 * rms);
  EXPECT_EQ(s.min, expected.min);
  EXPECT_EQ(s.max, expected.max);
  EXPECT_EQ(s.absmax, expected.absmax);
  EXPECT_EQ(s.absmax_row, expected.absmax_row);
  EXPECT_EQ(s.absmax_col, expected.absmax_col);
}

template <class T> Bytes bytes_of(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  if (!out.empty())
    std::memcpy(out.data(), values.data(), out.size());
  return out;
}

void check(const Bytes& data, DType dtype, std::int64_t rows, std::int64_t cols, const std::string& where) {
  expect_statistics(naive(data, dtype, rows, cols),
                    measured(TensorView::contiguous(data.data(), dtype, rows, cols)).statistics, where);
}

} // namespace

TEST(Statistics, AgreeWithLongDoubleForAllTypesAndShapes) {
  std::uint64_t seed = 100;
  for (const DType dtype : all_dtypes())
    for (const std::int64_t rows : {0, 1, 2, 5, 16, 33, 67, 600})
      for (const std::int64_t cols : {0, 1, 3, 8, 15, 16, 30, 100, 128, 519, 1200})
        for (const bool any_bits : {false, true}) {
          if (any_bits && dtype == DType::float64)
            continue; // squares overflow, see below
          if (any_bits && dtype == DType::int64 && rows * cols > 0)
            continue; // not exact in float64
          if (rows * cols > 100000 && item_size(dtype) == 1)
            continue;
          check(random_tensor(dtype, rows * cols, ++seed, any_bits), dtype, rows, cols,
                std::string(name(dtype)) + " " + std::to_string(rows) + "x" + std::to_string(cols));
        }
}

TEST(Statistics, TinyHugeAndSubnormalValues) {
  Random random(3);
  for (const float scale : {0x1p-149f, 0x1p-130f, 1e-30f, 1e30f, 3e38f}) {
    std::vector<float> values(40 * 50);
    for (float& value : values)
      value = scale * static_cast<float>(random.below(3) - 1);
    check(bytes_of(values), DType::float32, 40, 50, "scale " + std::to_string(std::log2(scale)));
  }
  std::vector<double> doubles(30 * 20);
  for (double& value : doubles)
    value = std::ldexp(random.normal(), static_cast<int>(random.below(600)) - 300);
  check(bytes_of(doubles), DType::float64, 30, 20, "float64 over 600 powers of two");
}

// The sum of squares of float64 may exceed its range; the figures are then infinite, not NaN.
TEST(Statistics, OverflowOfTheSquaresIsInfinite) {
  const std::vector<double> values(100, 1e200);
  const Statistics s = measured(TensorView::contiguous(values.data(), DType::float64, 10, 10)).statistics;
  EXPECT_EQ(s.l2, INFINITY);
  EXPECT_EQ(s.std, INFINITY);
  EXPECT_NEAR(s.mean, 1e200, 1e188);
  EXPECT_EQ(s.absmax, 1e200);
}

TEST(Statistics, NothingFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  std::vector<float> values(7 * 9, nan);
  check(bytes_of(values), DType::float32, 7, 9, "NaN");
  for (std::size_t i = 0; i < values.size(); i += 2)
    values[i] = i % 4 == 0 ? inf : -inf;
  check(bytes_of(values), DType::float32, 7, 9, "NaN and infinities");
  const Measurement m = measured(TensorView::contiguous(values.data(), DType::float32, 7, 9));
  for (const double bucket : m.sketch)
    EXPECT_EQ(bucket, 0);
}

TEST(Statistics, NonFiniteValuesAmongZerosDoNotPoseAsZeros) {
  std::vector<float> values(8 * 24, 0.0f);
  values[0] = std::numeric_limits<float>::infinity();
  values[1] = std::numeric_limits<float>::quiet_NaN();
  check(bytes_of(values), DType::float32, 8, 24, "zeros");
  values[100] = -5;
  check(bytes_of(values), DType::float32, 8, 24, "one value");
}

TEST(Statistics, ConstantTensors) {
  for (const float value : {0.0f, -0.0f, 1.0f, 0.1f, -3e5f}) {
    const std::vector<float> values(137 * 700, value);
    const Statistics s = measured(TensorView::contiguous(values.data(), DType::float32, 137, 700)).statistics;
    EXPECT_EQ(s.mean, static_cast<double>(value));
    EXPECT_EQ(s.std, 0);
    EXPECT_EQ(s.absmax_row, 0);
    EXPECT_EQ(s.absmax_col, 0);
    EXPECT_EQ(s.zeros, value == 0 ? 137 * 700 : 0);
    EXPECT_FALSE(std::signbit(s.min) && s.min == 0);
  }
}

// A large mean and a small deviation: the textbook formula would lose everything.
TEST(Statistics, DeviationSurvivesALargeMean) {
  Random random(4);
  for (const double mean : {1.0, 1e3, 1e6, 1e9}) {
    std::vector<double> values(300 * 400);
    for (double& value : values)
      value = mean + 1e-3 * random.normal();
    const Bytes data = bytes_of(values);
    const Naive expected = naive(data, DType::float64, 300, 400);
    const Statistics s = measured(TensorView::contiguous(data.data(), DType::float64, 300, 400), 2).statistics;
    // At 1e9 a float64 has steps of 1.2e-7, which the means of the pieces are rounded to.
    EXPECT_NEAR(s.std, static_cast<double>(expected.std), 1e-10 * static_cast<double>(expected.std) + 1e-18 * mean)
        << mean;
  }
  std::vector<float> one_step(64 * 256, 1.0f); // one element is the next float
  one_step[5000] = std::nextafter(1.0f, 2.0f);
  check(bytes_of(one_step), DType::float32, 64, 256, "one step");
}

TEST(Statistics, FirstOfEqualMaximaInRowMajorOrder) {
  Random random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t rows = 1 + random.below(40), cols = 1 + random.below(1500);
    std::vector<float> values(static_cast<std::size_t>(rows * cols), 0.5f);
    for (int i = 0; i < 4; ++i)
      values[static_cast<std::size_t>(random.below(rows * cols))] = random.below(2) == 0 ? 2.0f : -2.0f;
    check(bytes_of(values), DType::float32, rows, cols, std::to_string(rows) + "x" + std::to_string(cols));
  }
}

TEST(Statistics, EmptyTensors) {
  for (const auto& [rows, cols] : {std::pair{0, 0}, {0, 5}, {5, 0}}) {
    const Measurement m = measured(TensorView::contiguous(nullptr, DType::float32, rows, cols), 4);
    EXPECT_EQ(m.rows, rows);
    EXPECT_EQ(m.cols, cols);
    EXPECT_EQ(m.statistics.count, 0);
    EXPECT_TRUE(std::isnan(m.statistics.mean));
    EXPECT_EQ(m.statistics.l2, 0);
    ASSERT_EQ(m.sketch.size(), 256u);
  }
  const float value = 3;
  const Measurement none = measure(TensorView::contiguous(&value, DType::float32, 1, 1), {}, {});
  EXPECT_EQ(none.rows, 0);
  EXPECT_EQ(none.cols, 1);
}

TEST(Statistics, AWholeScalarIsOneRowAndOneColumn) {
  const float value = -7;
  TensorView view;
  view.data = &value;
  view.dtype = DType::float32;
  EXPECT_EQ(view.rows(), 1);
  EXPECT_EQ(view.cols(), 1);
  const Measurement m = measured(view);
  EXPECT_EQ(m.statistics.min, -7);
  EXPECT_EQ(m.statistics.absmax, 7);
}

TEST(Measure, OptionsLeaveOutWhatIsNotAskedFor) {
  const Bytes data = random_tensor(DType::float32, 20 * 30, 6);
  const auto view = TensorView::contiguous(data.data(), DType::float32, 20, 30);
  const RowRange all{0, 20};
  MeasureOptions options;
  options.statistics = false;
  const Measurement digest_only = measure(view, {&all, 1}, options);
  EXPECT_TRUE(digest_only.sketch.empty());
  EXPECT_TRUE(digest_only.columns.empty());
  const Measurement whole = measured(view);
  EXPECT_EQ(digest_only.digest, whole.digest);
  for (const int k : {0, 64, 128, 256})
    EXPECT_EQ(measured(view, 1, k).sketch.size(), static_cast<std::size_t>(k));
}

// One tensor, in every layout, by every instruction set and number of threads: the same bits.
TEST(Measure, SameBitsWhateverTheStridesThreadsAndInstructionSet) {
  const IsaGuard guard;
  std::uint64_t seed = 200;
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 1},   {3, 5},    {4, 16},    {7, 130},  {66, 33},
                                                          {515, 9}, {90, 520}, {700, 600}, {1030, 96}};
  for (const DType dtype : all_dtypes())
    for (const auto& [rows, cols] : shapes)
      for (const bool any_bits : {false, true}) {
        const Bytes data = random_tensor(dtype, rows * cols, ++seed, any_bits);
        MeasureOptions options;
        options.columns = rows * cols < 10000;
        const auto ranges = all_rows(rows);
        kernels::choose_isa(kernels::Isa::portable);
        const Measurement expected = measure(TensorView::contiguous(data.data(), dtype, rows, cols), ranges, options);
        for (const Laid& laid : layouts(data, dtype, rows, cols))
          for (const kernels::Isa isa : isas())
            for (const int threads : {1, 2, 5}) {
              if (threads > 1 && rows * cols < 10000)
                continue;
              kernels::choose_isa(isa);
              options.threads = threads;
              EXPECT_EQ(difference(expected, measure(laid.view, ranges, options)), "")
                  << name(dtype) << " " << rows << "x" << cols << " " << laid.name << " threads " << threads;
            }
      }
}

TEST(Measure, ElementsNeedNoAlignment) {
  for (const DType dtype : all_dtypes()) {
    const std::int64_t rows = 21, cols = 70;
    const Bytes data = random_tensor(dtype, rows * cols, 7, true);
    Bytes shifted(data.size() + 1);
    std::copy(data.begin(), data.end(), shifted.begin() + 1);
    MeasureOptions options;
    options.columns = true;
    const auto ranges = all_rows(rows);
    EXPECT_EQ(difference(measure(TensorView::contiguous(data.data(), dtype, rows, cols), ranges, options),
                         measure(TensorView::contiguous(shifted.data() + 1, dtype, rows, cols), ranges, options)),
              "");
  }
}

// A segment is what its rows are, wherever they lie in the tensor.
TEST(Measure, RowRangesSelectAndOrderRows) {
  const std::int64_t rows = 900, cols = 72;
  Random random(8);
  const Bytes data = random_tensor(DType::bfloat16, rows * cols, 8, true);
  const auto view = TensorView::contiguous(data.data(), DType::bfloat16, rows, cols);
  std::vector<RowRange> singles, blocks;
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t row = random.below(rows);
    singles.push_back({row, row + 1});
    if (i < 40)
      blocks.push_back({row, row + random.below(rows - row + 1)}); // some are empty
  }
  for (const auto& ranges : {singles, blocks}) {
    Bytes picked;
    std::int64_t count = 0;
    for (const RowRange& range : ranges) {
      picked.insert(picked.end(), data.begin() + range.begin * cols * 2, data.begin() + range.end * cols * 2);
      count += range.end - range.begin;
    }
    MeasureOptions options;
    options.columns = true;
    options.threads = 2;
    EXPECT_EQ(difference(measure(TensorView::contiguous(picked.data(), DType::bfloat16, count, cols), all_rows(count),
                                 options),
                         measure(view, ranges, options)),
              "");
  }
}

TEST(Measure, SixDimensions) {
  const std::int64_t total = 2 * 3 * 4 * 5 * 2 * 3;
  const Bytes data = random_tensor(DType::float32, total, 9);
  TensorView view;
  view.dtype = DType::float32;
  view.dims = 6;
  view.row_dims = 3;
  view.sizes = {2, 3, 4, 5, 2, 3};
  // Stored with the axes in the order 5, 2, 0, 4, 1, 3, axis 2 backwards.
  const std::size_t order[] = {5, 2, 0, 4, 1, 3};
  std::int64_t stride = 1;
  for (int i = 5; i >= 0; --i) {
    view.strides[order[i]] = stride;
    stride *= view.sizes[order[i]];
  }
  const std::int64_t first = view.strides[2] * 3;
  view.strides[2] = -view.strides[2];
  Bytes stored(data.size());
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i, offset = first;
    for (std::size_t d = 6; d-- > 0;) {
      offset += rest % view.sizes[d] * view.strides[d];
      rest /= view.sizes[d];
    }
    std::memcpy(stored.data() + offset * 4, data.data() + i * 4, 4);
  }
  view.data = stored.data() + first * 4;
  view.data = stored.data() + first * 4;
  EXPECT_EQ(view.rows(), 24);
  EXPECT_EQ(view.cols(), 30);
  EXPECT_EQ(difference(measured(TensorView::contiguous(data.data(), DType::float32, 24, 30)), measured(view)), "");
}

TEST(Measure, StrideZeroRepeatsAnElement) {
  const float value = 1.5f;
  TensorView view = TensorView::contiguous(&value, DType::float32, 40, 50);
  view.strides = {0, 0};
  const std::vector<float> values(40 * 50, value);
  EXPECT_EQ(difference(measured(TensorView::contiguous(values.data(), DType::float32, 40, 50)), measured(view)), "");
}

TEST(Measure, MoreThanTwoToThe31Elements) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "takes minutes with sanitizers";
#endif
  const std::int64_t rows = 2100, cols = std::int64_t{1} << 20;
  std::vector<std::uint8_t> row(static_cast<std::size_t>(cols), 1);
  row[static_cast<std::size_t>(cols - 1)] = 3;
  TensorView view = TensorView::contiguous(row.data(), DType::uint8, rows, cols);
  view.strides = {0, 1};
  const Measurement m = measured(view, 2);
  EXPECT_EQ(m.statistics.count, rows * cols);
  const auto n = static_cast<double>(rows * cols), threes = static_cast<double>(rows);
  EXPECT_NEAR(m.statistics.l2, std::sqrt(n + 8 * threes), 1e-12 * m.statistics.l2);
  EXPECT_NEAR(m.statistics.mean, 1 + 2 * threes / n, 1e-12);
  EXPECT_EQ(m.statistics.absmax_row, 0);
  EXPECT_EQ(m.statistics.absmax_col, cols - 1);
}

#if defined(__x86_64__)
// A program may have set the processor to flush subnormals; the measurement must not care, nor change that.
TEST(Measure, CallersFloatingPointModeDoesNotMatter) {
  const Bytes data = random_tensor(DType::float32, 64 * 64, 11, true);
  const auto view = TensorView::contiguous(data.data(), DType::float32, 64, 64);
  const Measurement expected = measured(view);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040u | 0x6000u); // flush to zero, denormals are zero, round towards zero
  const unsigned set = _mm_getcsr();
  const Measurement m = measured(view);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(set & 0xFFC0u, after & 0xFFC0u);
  EXPECT_EQ(difference(expected, m), "");
}
#endif

TEST(Cosine, AgreesWithLongDoubleOverFinitePairs) {
  const std::int64_t rows = 37, cols = 600;
  for (const DType left : {DType::float32, DType::bfloat16})
    for (const DType right : {DType::float32, DType::float64, DType::float16}) {
      const Bytes a = random_tensor(left, rows * cols, 12), b = random_tensor(right, rows * cols, 13);
      Bytes spoiled = a;
      const float nan = NAN;
      if (left == DType::float32)
        std::memcpy(spoiled.data() + 4 * 77, &nan, 4);
      long double dot = 0, aa = 0, bb = 0;
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        const long double x = to_double(left, spoiled.data() + i * static_cast<std::int64_t>(item_size(left)));
        const long double y = to_double(right, b.data() + i * static_cast<std::int64_t>(item_size(right)));
        if (!std::isfinite(x) || !std::isfinite(y))
          continue;
        dot += x * y;
        aa += x * x;
        bb += y * y;
      }
      const auto va = TensorView::contiguous(spoiled.data(), left, rows, cols),
                 vb = TensorView::contiguous(b.data(), right, rows, cols);
      EXPECT_NEAR(cosine(va, vb, all_rows(rows)), static_cast<double>(dot / std::sqrt(aa * bb)), 1e-13);
      EXPECT_NEAR(cosine(va, va, all_rows(rows)), 1, 1e-13);
      for (const Laid& laid : layouts(b, right, rows, cols))
        EXPECT_TRUE(same_bits(cosine(va, laid.view, all_rows(rows)), cosine(va, vb, all_rows(rows)))) << laid.name;
    }
  const std::vector<float> zeros(10, 0.0f), ones(10, 1.0f);
  const auto z = TensorView::contiguous(zeros.data(), DType::float32, 2, 5),
             o = TensorView::contiguous(ones.data(), DType::float32, 2, 5);
  EXPECT_TRUE(std::isnan(cosine(z, o, all_rows(2))));
  EXPECT_TRUE(std::isnan(cosine(z, z, {})));
}

TEST(Narrowing, LosslessExactlyForValuesOfTheNarrowType) {
  const std::int64_t rows = 9, cols = 515;
  for (const DType narrow : {DType::bfloat16, DType::float16, DType::float8_e4m3fn, DType::float8_e5m2, DType::float32})
    for (const DType wide : {DType::float32, DType::float64}) {
      if (narrow == wide)
        continue;
      const Bytes source = random_tensor(narrow, rows * cols, 14, true);
      Bytes data(static_cast<std::size_t>(rows * cols) * item_size(wide));
      for (std::int64_t i = 0; i < rows * cols; ++i)
        put(wide, to_double(narrow, source.data() + i * static_cast<std::int64_t>(item_size(narrow))),
            data.data() + i * static_cast<std::int64_t>(item_size(wide)));
      for (const Laid& laid : layouts(data, wide, rows, cols))
        EXPECT_TRUE(narrowing_is_lossless(laid.view, all_rows(rows), narrow))
            << name(narrow) << " in " << name(wide) << " " << laid.name;
      Random random(15);
      for (int trial = 0; trial < 50; ++trial) { // one value between two neighbours
        Bytes off = data;
        const std::int64_t at = random.below(rows * cols);
        put(wide, 1 + unit_roundoff(narrow), off.data() + at * static_cast<std::int64_t>(item_size(wide)));
        EXPECT_FALSE(
            narrowing_is_lossless(TensorView::contiguous(off.data(), wide, rows, cols), all_rows(rows), narrow));
        const RowRange others[] = {{0, at / cols}, {at / cols + 1, rows}};
        EXPECT_TRUE(narrowing_is_lossless(TensorView::contiguous(off.data(), wide, rows, cols), others, narrow));
      }
    }
}

TEST(Narrowing, EdgesOfTheFormats) {
  const auto lossless = [](double value, DType narrow) {
    return narrowing_is_lossless(TensorView::contiguous(&value, DType::float64, 1, 1), all_rows(1), narrow);
  };
  const double inf = INFINITY;
  EXPECT_TRUE(lossless(65504, DType::float16));
  EXPECT_FALSE(lossless(65520, DType::float16));
  EXPECT_FALSE(lossless(65536, DType::float16));
  EXPECT_TRUE(lossless(0x1p-24, DType::float16));
  EXPECT_FALSE(lossless(0x1p-25, DType::float16));
  EXPECT_FALSE(lossless(0x1.8p-24, DType::float16));
  EXPECT_TRUE(lossless(448, DType::float8_e4m3fn));
  EXPECT_FALSE(lossless(480, DType::float8_e4m3fn));
  EXPECT_FALSE(lossless(inf, DType::float8_e4m3fn));
  EXPECT_TRUE(lossless(-inf, DType::float8_e5m2));
  EXPECT_TRUE(lossless(NAN, DType::float8_e4m3fn));
  EXPECT_TRUE(lossless(-0.0, DType::bfloat16));
  EXPECT_TRUE(lossless(0x1p-133, DType::bfloat16));
  EXPECT_FALSE(lossless(0x1p-134, DType::bfloat16));
  EXPECT_TRUE(lossless(0x1p-149, DType::float32));
  EXPECT_FALSE(lossless(0x1p-150, DType::float32));
  EXPECT_FALSE(lossless(1e300, DType::float32));
  EXPECT_TRUE(lossless(-128, DType::int8));
  EXPECT_FALSE(lossless(128, DType::int8));
  EXPECT_FALSE(lossless(0.5, DType::int32));
  EXPECT_FALSE(lossless(-0.0, DType::int32));
  EXPECT_FALSE(lossless(NAN, DType::int64));
}
