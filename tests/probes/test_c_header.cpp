// The C header measures what the library measures, bit for bit: every dtype, layout and odd size.
#include "h3diff/h3diff_probe.h"
#include "h3diff/probes/measure.hpp"
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace {

using namespace h3diff::probes;

std::uint64_t next(std::uint64_t& state) { // splitmix64
  std::uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

enum class Content { bits, finite, constant, offset, zeros, extreme };

// Float contents other than `bits` are made as float64 and cut to the dtype's leading bytes, which is exact enough:
// only the variety of bit patterns matters.
std::vector<std::byte> fill(DType dtype, std::size_t elements, Content content, std::uint64_t seed) {
  const std::size_t item = item_size(dtype);
  std::vector<std::byte> out(elements * item);
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint64_t raw = next(state);
    if (content != Content::bits) {
      double value = 0;
      const double uniform = static_cast<double>(raw >> 11) * 0x1p-53 * 2 - 1;
      if (content == Content::finite)
        value = uniform;
      if (content == Content::constant)
        value = 1.1;
      if (content == Content::offset)
        value = 1000 + uniform / 16;
      if (content == Content::extreme)
        value = dtype == DType::float64 ? uniform * 1e300 : uniform * 1e38;
      if (content == Content::zeros)
        value = raw % 7 == 0 ? -0.0 : 0.0;
      if (dtype == DType::float64)
        raw = std::bit_cast<std::uint64_t>(value);
      else if (dtype == DType::float32)
        raw = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      else if (dtype == DType::bfloat16)
        raw = std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16;
      else if (is_floating(dtype))
        raw = content == Content::zeros ? 0 : content == Content::constant ? 0x3A3A : raw & 0x3B3B;
      else
        raw = content == Content::zeros ? 0 : content == Content::constant ? 77 : raw >> 7;
    }
    if (dtype == DType::boolean)
      raw &= 1;
    std::memcpy(out.data() + i * item, &raw, item);
  }
  return out;
}

std::uint64_t bits(double x) { return std::isnan(x) ? 0x7FF8000000000000 : std::bit_cast<std::uint64_t>(x); }
std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

h3diff_tensor as_c(const TensorView& view, const char* probe = "blocks.0.out") {
  h3diff_tensor t{};
  t.probe = probe;
  t.dtype = static_cast<int>(view.dtype) + 1;
  t.data = view.data;
  t.ndim = view.dims;
  t.row_dims = view.row_dims;
  for (std::size_t d = 0; d < 6; ++d) {
    t.shape[d] = view.sizes[d];
    t.strides[d] = view.strides[d];
  }
  return t;
}

void expect_equal(const Measurement& ours, const h3diff_measurement& c, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(ours.rows, c.rows);
  ASSERT_EQ(ours.cols, c.cols);
  ASSERT_EQ(ours.digest.a, c.digest[0]);
  ASSERT_EQ(ours.digest.b, c.digest[1]);
  const Statistics& s = ours.statistics;
  ASSERT_EQ(s.zeros, c.zeros);
  ASSERT_EQ(s.nan, c.nan);
  ASSERT_EQ(s.inf, c.inf);
  ASSERT_EQ(s.subnormal, c.subnormal);
  ASSERT_EQ(bits(s.mean), bits(c.mean)) << s.mean << " " << c.mean;
  ASSERT_EQ(bits(s.std), bits(c.std)) << s.std << " " << c.std;
  ASSERT_EQ(bits(s.l2), bits(c.l2)) << s.l2 << " " << c.l2;
  ASSERT_EQ(bits(s.min), bits(c.min));
  ASSERT_EQ(bits(s.max), bits(c.max));
  ASSERT_EQ(bits(s.absmax), bits(c.absmax));
  ASSERT_EQ(s.absmax_row, c.absmax_row);
  ASSERT_EQ(s.absmax_col, c.absmax_col);
  for (std::size_t i = 0; i < 16; ++i) {
    ASSERT_EQ(bits(s.row_bands[i]), bits(c.row_bands[i])) << i;
    ASSERT_EQ(bits(s.col_groups[i]), bits(c.col_groups[i])) << i;
  }
  ASSERT_EQ(ours.sketch.size(), static_cast<std::size_t>(c.sketch_k));
  for (std::size_t i = 0; i < ours.sketch.size(); ++i)
    ASSERT_EQ(bits(ours.sketch[i] + 0.0), bits(c.sketch[i] + 0.0)) << i << ": " << ours.sketch[i] << " " << c.sketch[i];
}

struct Bench {
  std::unique_ptr<h3diff_workspace> workspace = std::make_unique<h3diff_workspace>();
  std::unique_ptr<h3diff_measurement> measured = std::make_unique<h3diff_measurement>();

  void check(const TensorView& view, std::vector<RowRange> ranges, int k, const std::string& what) {
    MeasureOptions options;
    options.sketch_k = k;
    const Measurement ours = measure(view, ranges, options);
    h3diff_tensor t = as_c(view);
    std::vector<h3diff_row_range> c_ranges;
    for (const RowRange& r : ranges)
      c_ranges.push_back({r.begin, r.end});
    const h3diff_segment_rows segment{H3DIFF_VIDEO, c_ranges.data(), c_ranges.size()};
    t.segments = &segment;
    t.segment_count = 1;
    ASSERT_EQ(h3diff_measure(&t, 0, k, workspace.get(), measured.get()), H3DIFF_OK) << what;
    expect_equal(ours, *measured, what);
  }
};

const DType all_dtypes[] = {DType::float64,       DType::float32,     DType::bfloat16, DType::float16,
                            DType::float8_e4m3fn, DType::float8_e5m2, DType::int8,     DType::uint8,
                            DType::int32,         DType::int64,       DType::boolean};

class CHeader : public testing::TestWithParam<DType> {};

TEST_P(CHeader, EqualsTheLibraryAtOddSizes) {
  const DType dtype = GetParam();
  Bench bench;
  const std::pair<int, int> shapes[] = {{0, 0},    {0, 5},      {5, 0},    {1, 1},    {1, 2},    {3, 5},
                                        {4, 8},    {5, 17},     {7, 129},  {17, 96},  {33, 511}, {65, 513},
                                        {513, 31}, {600, 1030}, {1003, 1}, {2, 66001}};
  for (const auto& [rows, cols] : shapes) {
    for (const Content content :
         {Content::bits, Content::finite, Content::constant, Content::offset, Content::zeros, Content::extreme}) {
      const auto data = fill(dtype, static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols), content, 7);
      const int k = content == Content::finite   ? 256
                    : content == Content::bits   ? 64
                    : content == Content::offset ? 128
                                                 : 0;
      bench.check(TensorView::contiguous(data.data(), dtype, rows, cols), {{0, rows}}, k,
                  std::to_string(rows) + "x" + std::to_string(cols) + " content " +
                      std::to_string(static_cast<int>(content)));
      if (HasFatalFailure())
        return;
    }
  }
}

TEST_P(CHeader, EqualsTheLibraryOnStridedTensors) {
  const DType dtype = GetParam();
  Bench bench;
  const std::size_t item = item_size(dtype);
  const auto data = fill(dtype, 200000, Content::bits, 11);
  const auto view = [&](std::int64_t offset, int row_dims, std::vector<std::int64_t> sizes,
                        std::vector<std::int64_t> strides) {
    TensorView v;
    v.data = data.data() + offset * static_cast<std::int64_t>(item);
    v.dtype = dtype;
    v.dims = static_cast<int>(sizes.size());
    v.row_dims = row_dims;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      v.sizes[d] = sizes[d];
      v.strides[d] = strides[d];
    }
    return v;
  };
  bench.check(view(0, 1, {61, 97}, {1, 61}), {{0, 61}}, 256, "transposed");
  bench.check(view(3, 1, {50, 33}, {101, 3}), {{0, 50}}, 256, "every third column");
  bench.check(view(60000, 1, {50, 33}, {-101, -2}), {{0, 50}}, 64, "backwards");
  bench.check(view(5, 1, {40, 70}, {0, 1}), {{0, 40}}, 256, "one row repeated");
  bench.check(view(5, 1, {40, 70}, {70, 0}), {{0, 40}}, 256, "one column repeated");
  bench.check(view(0, 1, {30, 7, 16}, {16, 30 * 16, 1}), {{0, 30}}, 256, "heads outermost in memory");
  bench.check(view(1, 2, {1, 37, 5, 24}, {1, 200, 40, 1}), {{0, 37}}, 256, "padded heads");
  bench.check(view(0, 2, {6, 11, 3, 5, 2}, {7, 400, 97, 2, 50}), {{0, 66}}, 128, "rows of two dimensions");
  bench.check(view(2, 0, {77}, {3}), {{0, 1}}, 256, "a 1-D weight");
  bench.check(view(0, 0, {}, {}), {{0, 1}}, 64, "a scalar");
  bench.check(view(0, 1, {700, 40}, {41, 1}), {{5, 9}, {600, 700}, {9, 9}, {0, 3}, {20, 580}}, 256,
              "ranges out of order");
  bench.check(view(0, 1, {700, 40}, {41, 1}), {{699, 700}, {3, 4}, {3, 4}}, 256, "single rows");
  bench.check(view(1, 6, {2, 3, 1, 5, 2, 4}, {300, 90, 7, 11, 4, 1}), {{0, 240}}, 64, "six row dimensions");
}

TEST_P(CHeader, ColumnsEqualTheLibrary) {
  const DType dtype = GetParam();
  for (const Content content : {Content::bits, Content::offset, Content::constant}) {
    for (const auto& [rows, cols] : {std::pair<int, int>{130, 35}, {3, 16}, {64, 1}, {67, 8}}) {
      const auto data = fill(dtype, static_cast<std::size_t>(rows * cols), content, 5);
      const TensorView view = TensorView::contiguous(data.data(), dtype, rows, cols);
      MeasureOptions options;
      options.columns = true;
      const RowRange all{0, rows};
      const Measurement ours = measure(view, {&all, 1}, options);

      std::vector<unsigned char> stream;
      const auto write = [](void* user, const void* bytes, std::size_t size) {
        const auto* from = static_cast<const unsigned char*>(bytes);
        static_cast<std::vector<unsigned char>*>(user)->insert(static_cast<std::vector<unsigned char>*>(user)->end(),
                                                               from, from + size);
        return 0;
      };
      const auto s = std::make_unique<h3diff_stream>();
      ASSERT_EQ(h3diff_open_callback(s.get(), write, &stream, nullptr), H3DIFF_OK);
      h3diff_tensor t = as_c(view, "w");
      t.step = -1;
      ASSERT_EQ(h3diff_columns(s.get(), &t), H3DIFF_OK);
      ASSERT_EQ(h3diff_end_weights(s.get()), H3DIFF_OK);

      // COLS records of up to 16 columns each, by docs/stream-format.md.
      std::size_t at = 16, column = 0;
      while (column < static_cast<std::size_t>(cols)) {
        ASSERT_EQ(std::memcmp(&stream[at], "COLS", 4), 0);
        std::uint32_t first, count;
        std::memcpy(&first, &stream[at + 8], 4);
        std::memcpy(&count, &stream[at + 12], 4);
        ASSERT_EQ(first, column);
        const unsigned char* entry = &stream[at + 8 + 14 + 1];
        for (std::uint32_t i = 0; i < count; ++i, entry += 88, ++column) {
          const ColumnMeasurement& c = ours.columns[column];
          std::uint64_t words[11];
          std::memcpy(words, entry, 88);
          const std::uint64_t expected[11] = {c.digest.a,
                                              c.digest.b,
                                              static_cast<std::uint64_t>(c.zeros),
                                              static_cast<std::uint64_t>(c.nan),
                                              static_cast<std::uint64_t>(c.inf),
                                              bits(c.mean),
                                              bits(c.std),
                                              bits(c.l2),
                                              bits(c.min),
                                              bits(c.max),
                                              bits(c.absmax)};
          for (int w = 0; w < 11; ++w)
            ASSERT_EQ(words[w], expected[w]) << "column " << column << " word " << w;
        }
        at += 12 + 14 + 1 + 88 * count;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllDtypes, CHeader, testing::ValuesIn(all_dtypes),
                         [](const auto& tested) { return std::string(name(tested.param)); });

// A float tensor held wider than it was computed is digested in its compute dtype exactly where the library says that
// narrowing is lossless, and then equals the digest of the narrow tensor.
TEST(CHeaderNarrowing, EveryValueOfTheNarrowTypes) {
  Bench bench;
  for (const DType narrow : {DType::bfloat16, DType::float16, DType::float8_e4m3fn, DType::float8_e5m2}) {
    const std::size_t count = std::size_t{1} << 8 * item_size(narrow);
    for (const DType wide : {DType::float32, DType::float64}) {
      std::vector<std::byte> small, large;
      for (std::size_t i = 0; i < count; ++i) {
        const double value = to_double(narrow, &i);
        if (std::isnan(value))
          continue;
        small.insert(small.end(), reinterpret_cast<const std::byte*>(&i),
                     reinterpret_cast<const std::byte*>(&i) + item_size(narrow));
        const float single = static_cast<float>(value);
        const auto* from = wide == DType::float32 ? reinterpret_cast<const std::byte*>(&single)
                                                  : reinterpret_cast<const std::byte*>(&value);
        large.insert(large.end(), from, from + item_size(wide));
      }
      const auto elements = static_cast<std::int64_t>(small.size() / item_size(narrow));
      h3diff_tensor t = as_c(TensorView::contiguous(large.data(), wide, elements, 1));
      t.compute_dtype = static_cast<int>(narrow) + 1;
      ASSERT_EQ(h3diff_measure(&t, 0, 256, bench.workspace.get(), bench.measured.get()), H3DIFF_OK);
      ASSERT_EQ(bench.measured->dtype, static_cast<int>(narrow) + 1) << name(narrow) << " in " << name(wide);
      const RowRange all{0, elements};
      expect_equal(measure(TensorView::contiguous(small.data(), narrow, elements, 1), {&all, 1}, {}), *bench.measured,
                   std::string(name(narrow)));
    }
  }
}

TEST(CHeaderNarrowing, AgreesWithTheLibraryOnWhatFits) {
  Bench bench;
  std::uint64_t state = 3;
  int fits = 0;
  for (int i = 0; i < 20000; ++i) {
    // Few significant bits and exponents around each type's ends, so that either answer is common.
    const std::uint64_t r = next(state);
    const int exponent = static_cast<int>(r % 320) - 160;
    double value =
        std::ldexp(1 + static_cast<double>(r >> 32 & 15) / 16 + static_cast<double>(r >> 40 & 1) / 2048, exponent);
    if (i % 50 == 0)
      value = std::numeric_limits<double>::infinity();
    if (i % 51 == 0)
      value = std::numeric_limits<double>::quiet_NaN();
    if (r >> 63)
      value = -value;
    const float single = static_cast<float>(value);
    for (const DType wide : {DType::float32, DType::float64}) {
      const TensorView view =
          TensorView::contiguous(wide == DType::float32 ? static_cast<const void*>(&single) : &value, wide, 1, 1);
      for (const DType narrow :
           {DType::float32, DType::bfloat16, DType::float16, DType::float8_e4m3fn, DType::float8_e5m2}) {
        if (narrow == wide)
          continue;
        h3diff_tensor t = as_c(view);
        t.level = H3DIFF_DIGEST;
        t.compute_dtype = static_cast<int>(narrow) + 1;
        ASSERT_EQ(h3diff_measure(&t, 0, 0, bench.workspace.get(), bench.measured.get()), H3DIFF_OK);
        const RowRange one{0, 1};
        const bool lossless = narrowing_is_lossless(view, {&one, 1}, narrow);
        fits += lossless;
        ASSERT_EQ(bench.measured->dtype == static_cast<int>(narrow) + 1, lossless) << value << " as " << name(narrow);
      }
    }
  }
  EXPECT_GT(fits, 1000);
}

TEST(CHeaderCosine, EqualsTheLibrary) {
  Bench bench;
  const auto a = fill(DType::bfloat16, 90 * 700, Content::bits, 1),
             b = fill(DType::float32, 90 * 700, Content::finite, 2);
  const TensorView left = TensorView::contiguous(a.data(), DType::bfloat16, 90, 700);
  const TensorView right = TensorView::contiguous(b.data(), DType::float32, 90, 700);
  const std::vector<RowRange> ranges{{40, 90}, {0, 10}};
  const h3diff_row_range c_ranges[] = {{40, 90}, {0, 10}};
  const h3diff_segment_rows segment{H3DIFF_VIDEO, c_ranges, 2};
  h3diff_tensor input = as_c(right, "input.video"), pred = as_c(left, "pred.video");
  pred.model_input = &input;
  pred.segments = &segment;
  pred.segment_count = 1;
  ASSERT_EQ(h3diff_measure(&pred, 0, 0, bench.workspace.get(), bench.measured.get()), H3DIFF_OK);
  EXPECT_EQ(bits(bench.measured->cosine), bits(cosine(left, right, ranges)));
  input.shape[1] = 699;
  EXPECT_EQ(h3diff_measure(&pred, 0, 0, bench.workspace.get(), bench.measured.get()), H3DIFF_BAD_ARGUMENT);
}

// What a call refuses, it says; and it writes nothing.
TEST(CHeaderErrors, ArgumentsAreCheckedBeforeAnythingIsWritten) {
  static std::size_t written;
  written = 0;
  const auto count = [](void*, const void*, std::size_t size) {
    written += size;
    return 0;
  };
  const auto s = std::make_unique<h3diff_stream>();
  ASSERT_EQ(h3diff_open_callback(s.get(), count, nullptr, nullptr), H3DIFF_OK);
  ASSERT_EQ(h3diff_end_weights(s.get()), H3DIFF_OK);
  const std::size_t before = written;
  const float data[12] = {};
  const h3diff_tensor good = h3diff_matrix("blocks.0.out", 0, H3DIFF_FLOAT32, 3, 4, data);
  const auto refused = [&](auto change, const char* part, h3diff_status status = H3DIFF_BAD_ARGUMENT) {
    h3diff_tensor t = good;
    change(t);
    EXPECT_EQ(h3diff_probe(s.get(), &t), status) << part;
    EXPECT_NE(std::string(h3diff_error(s.get())).find(part), std::string::npos) << h3diff_error(s.get());
  };
  const std::string long_name(81, 'x');
  refused([](auto& t) { t.probe = nullptr; }, "name");
  refused([](auto& t) { t.probe = ""; }, "name");
  refused([&](auto& t) { t.probe = long_name.c_str(); }, "name");
  refused([](auto& t) { t.step = -2; }, "step");
  refused([](auto& t) { t.step = -1; }, "ended", H3DIFF_BAD_ORDER);
  refused([](auto& t) { t.dtype = 0; }, "dtype");
  refused([](auto& t) { t.dtype = 12; }, "dtype");
  refused([](auto& t) { t.compute_dtype = 99; }, "compute_dtype");
  refused([](auto& t) { t.level = 5; }, "level");
  refused([](auto& t) { t.ndim = 7; }, "dimensions");
  refused([](auto& t) { t.row_dims = 3; }, "row_dims");
  refused([](auto& t) { t.shape[0] = -1; }, "shape");
  refused([](auto& t) { t.shape[0] = t.shape[1] = std::int64_t{1} << 39; }, "shape");
  refused([](auto& t) { t.data = nullptr; }, "NULL");
  const h3diff_row_range outside{1, 4}, backwards{2, 1}, fine{0, 3};
  h3diff_segment_rows segments[2] = {{H3DIFF_VIDEO, &fine, 1}, {H3DIFF_AUDIO, &outside, 1}};
  const auto with_segments = [&](auto& t) {
    t.segments = segments;
    t.segment_count = 2;
  };
  refused(with_segments, "range");
  segments[1].ranges = &backwards;
  refused(with_segments, "range");
  segments[1].ranges = nullptr;
  refused(with_segments, "ranges");
  segments[1] = {H3DIFF_VIDEO, &fine, 1};
  refused(with_segments, "twice");
  segments[1].segment = 7;
  refused(with_segments, "segment");
  EXPECT_EQ(h3diff_fact_text(s.get(), "", "x"), H3DIFF_BAD_ARGUMENT);
  EXPECT_EQ(h3diff_fact_text(s.get(), "x", nullptr), H3DIFF_BAD_ARGUMENT);
  EXPECT_EQ(h3diff_unobserved(s.get(), "x", ""), H3DIFF_BAD_ARGUMENT);
  EXPECT_EQ(h3diff_dispatch(s.get(), "attention", "sdpa", "", 1, 2), H3DIFF_BAD_ARGUMENT);
  EXPECT_EQ(h3diff_end_step(s.get(), -1, 0, 0, 0, 0), H3DIFF_BAD_ORDER);
  EXPECT_EQ(h3diff_columns(s.get(), &good), H3DIFF_BAD_ARGUMENT);
  EXPECT_EQ(written, before);
  ASSERT_EQ(h3diff_close(s.get()), H3DIFF_OK); // refusals do not stick
  EXPECT_EQ(h3diff_probe(s.get(), &good), H3DIFF_BAD_ORDER);
  EXPECT_EQ(h3diff_close(s.get()), H3DIFF_BAD_ORDER);
}

TEST(CHeaderErrors, AWriteErrorSticks) {
  static int left;
  left = 3;
  const auto failing = [](void*, const void*, std::size_t) { return left-- > 0 ? 0 : 1; };
  const auto s = std::make_unique<h3diff_stream>();
  ASSERT_EQ(h3diff_open_callback(s.get(), failing, nullptr, nullptr), H3DIFF_OK);
  const std::vector<float> data(500, 1.0f);
  const h3diff_tensor t = h3diff_matrix("blocks.0.out", 0, H3DIFF_FLOAT32, 5, 100, data.data());
  h3diff_status last = H3DIFF_OK;
  for (int i = 0; i < 10; ++i)
    last = h3diff_probe(s.get(), &t);
  EXPECT_EQ(last, H3DIFF_WRITE_FAILED);
  EXPECT_EQ(h3diff_end_step(s.get(), 0, 0, 0, 0, 0), H3DIFF_WRITE_FAILED);
  EXPECT_EQ(h3diff_close(s.get()), H3DIFF_WRITE_FAILED);
  EXPECT_STRNE(h3diff_error(s.get()), "");
}

} // namespace
