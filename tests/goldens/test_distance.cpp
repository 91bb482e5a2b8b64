#include "distance.hpp"
#include "locate.hpp"
#include "run_builder.hpp"
#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include <limits>

namespace h3diff::goldens {
namespace {

using namespace testing;
using probes::DumpReader;
using probes::StoredTensor;
using probes::TensorView;

// One dump that holds given tensors, each under its own probe name.
class Tensors {
public:
  Tensors() : writer_(*probes::DumpWriter::create({path_, true}, {})) {}

  template <class T> void add(const std::string& probe, DType dtype, std::int64_t rows, const std::vector<T>& values,
                              std::int64_t sample = 0) {
    const std::int64_t cols = static_cast<std::int64_t>(values.size()) / rows;
    const auto view = TensorView::contiguous(values.data(), dtype, rows, cols);
    const probes::RowRange all{0, rows};
    probes::IndexRow row;
    row.probe = probe;
    row.dtype = row.stored_dtype = dtype;
    row.rows = rows;
    row.cols = cols;
    row.level = sample > 0 ? Level::rows : Level::full;
    const auto measured = probes::measure(view, {&all, 1}, {true, 0, false, 1});
    row.digest = measured.digest;
    row.statistics = measured.statistics;
    writer_.add(row, {});
    const auto added = writer_.add_tensor(0, probe, Segment::all, view, {&all, 1}, sample);
    ASSERT_TRUE(added) << added.error().message;
  }

  void close() {
    ASSERT_TRUE(writer_.end_step({0, 1, 1, 0, 0}));
    ASSERT_TRUE(writer_.finish({}));
    auto opened = DumpReader::open(path_);
    ASSERT_TRUE(opened) << opened.error().message;
    reader_.emplace(std::move(*opened));
  }

  StoredTensor get(const std::string& probe) const {
    for (const auto& row : reader_->index())
      if (row.probe == probe)
        return **reader_->tensor(row);
    ADD_FAILURE() << probe;
    return {};
  }

  TensorPair pair(const std::string& a, const std::string& b) const { return *TensorPair::match(get(a), get(b)); }

private:
  std::string path_ = temporary("tensors.h5");
  probes::DumpWriter writer_;
  std::optional<DumpReader> reader_;
};

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> out(count);
  std::uint64_t state = seed * 2654435761U + 12345;
  for (float& value : out) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<float>(static_cast<std::int64_t>(state >> 33) - (std::int64_t{1} << 30)) / 1e9F;
  }
  return out;
}

std::string numbered(char letter, std::size_t i) {
  std::string name(1, letter);
  return name.append(std::to_string(i));
}

struct Naive {
  long double difference = 0, reference = 0, candidate = 0;
};
template <class A, class B> Naive naive(const std::vector<A>& a, const std::vector<B>& b) {
  Naive out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double x = a[i], y = b[i];
    out.difference += (x - y) * (x - y);
    out.reference += x * x;
    out.candidate += y * y;
  }
  return out;
}

TEST(TensorSums, AgreeWithALongDoubleLoopAtOddSizes) {
  Tensors tensors;
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes = {{1, 1},  {3, 5},      {1, 8},
                                                               {7, 31}, {1000, 333}, {2, 300001}};
  std::vector<Naive> expected;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto n = static_cast<std::size_t>(shapes[i].first * shapes[i].second);
    auto a = numbers(n, 1), b = numbers(n, 2);
    tensors.add(numbered('a', i), DType::float32, shapes[i].first, a);
    tensors.add(numbered('b', i), DType::float32, shapes[i].first, b);
    expected.push_back(naive(a, b));
  }
  tensors.close();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto sums = tensor_sums(tensors.pair(numbered('a', i), numbered('b', i)), 2);
    ASSERT_TRUE(sums);
    EXPECT_EQ(sums->pairs, shapes[i].first * shapes[i].second);
    EXPECT_FALSE(sums->identical);
    EXPECT_NEAR(sums->difference, static_cast<double>(expected[i].difference), 1e-12 * sums->difference);
    EXPECT_NEAR(sums->reference, static_cast<double>(expected[i].reference), 1e-12 * sums->reference);
    EXPECT_NEAR(sums->candidate, static_cast<double>(expected[i].candidate), 1e-12 * sums->candidate);
    EXPECT_NEAR(sums->rel_l2(), std::sqrt(static_cast<double>(expected[i].difference / expected[i].reference)), 1e-9);
  }
}

TEST(TensorSums, DoNotDependOnThreads) {
  Tensors tensors;
  tensors.add("a", DType::float32, 3000, numbers(3000 * 1111, 3)); // several chunks
  tensors.add("b", DType::float32, 3000, numbers(3000 * 1111, 4));
  tensors.close();
  const auto pair = tensors.pair("a", "b");
  const auto one = tensor_sums(pair, 1);
  for (const int threads : {2, 3, 7}) {
    const auto many = tensor_sums(pair, threads);
    EXPECT_EQ(one->difference, many->difference);
    EXPECT_EQ(one->reference, many->reference);
    EXPECT_EQ(one->candidate_sum, many->candidate_sum);
  }
}

TEST(TensorSums, IdenticalBytesAreTold) {
  Tensors tensors;
  auto a = numbers(5000, 5);
  tensors.add("a", DType::float32, 50, a);
  tensors.add("b", DType::float32, 50, a);
  a[77] = -a[77];
  tensors.add("c", DType::float32, 50, a);
  tensors.close();
  const auto same = tensor_sums(tensors.pair("a", "b"), 2);
  EXPECT_TRUE(same->identical);
  EXPECT_EQ(same->rel_l2(), 0);
  EXPECT_EQ(same->std_ratio(), 1);
  EXPECT_NEAR(same->cosine(), 1, 1e-15);
  EXPECT_FALSE(tensor_sums(tensors.pair("a", "c"), 2)->identical);
}

TEST(TensorSums, ReadEveryDtypeExactly) {
  Tensors tensors;
  const std::vector<float> f32 = {1, -2, 0.5F, 3, 96, -0.25F};
  const std::vector<double> f64 = {1, -2, 0.5, 3, 96, -0.25};
  const std::vector<std::uint16_t> bf16 = {0x3F80, 0xC000, 0x3F00, 0x4040, 0x42C0, 0xBE80};
  const std::vector<std::uint16_t> f16 = {0x3C00, 0xC000, 0x3800, 0x4200, 0x5600, 0xB400};
  const std::vector<std::uint8_t> e4m3 = {0x38, 0xC0, 0x30, 0x44, 0x6C, 0xA8};
  const std::vector<std::uint8_t> e5m2 = {0x3C, 0xC0, 0x38, 0x42, 0x56, 0xB4};
  tensors.add("float32", DType::float32, 2, f32);
  tensors.add("float64", DType::float64, 2, f64);
  tensors.add("bfloat16", DType::bfloat16, 2, bf16);
  tensors.add("float16", DType::float16, 2, f16);
  tensors.add("float8_e4m3fn", DType::float8_e4m3fn, 2, e4m3);
  tensors.add("float8_e5m2", DType::float8_e5m2, 2, e5m2);
  tensors.add("int8", DType::int8, 2, std::vector<std::int8_t>{1, -2, 0, 3, 96, 0});
  tensors.add("int64", DType::int64, 2, std::vector<std::int64_t>{1, -2, 0, 3, 96, 0});
  tensors.add("int32", DType::int32, 2, std::vector<std::int32_t>{1, -2, 0, 3, 96, 0});
  tensors.close();
  for (const char* other : {"float64", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"}) {
    const auto sums = tensor_sums(tensors.pair("float32", other), 1);
    EXPECT_EQ(sums->difference, 0) << other;
    EXPECT_EQ(sums->candidate, 1 + 4 + 0.25 + 9 + 9216 + 0.0625) << other;
    EXPECT_FALSE(sums->identical) << other;
  }
  for (const char* other : {"int64", "int32"})
    EXPECT_EQ(tensor_sums(tensors.pair("int8", other), 1)->difference, 0);
}

TEST(TensorSums, LeaveNonFiniteValuesOutAndCountThem) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  Tensors tensors;
  auto a = numbers(10000, 6), b = a;
  a[5] = inf;
  b[5] = inf; // both: neither lost nor gained
  b[9000] = nan;
  a[17] = nan;
  b[20] = a[20] + 1;
  tensors.add("a", DType::float32, 100, a);
  tensors.add("b", DType::float32, 100, b);
  tensors.close();
  const auto sums = tensor_sums(tensors.pair("a", "b"), 2);
  EXPECT_EQ(sums->pairs, 9997);
  EXPECT_EQ(sums->lost, 1);
  EXPECT_EQ(sums->gained, 1);
  EXPECT_NEAR(sums->difference, 1, 1e-6);
}

TEST(TensorSums, ZeroReference) {
  Tensors tensors;
  tensors.add("zero", DType::float32, 2, std::vector<float>(8, 0));
  tensors.add("minus", DType::float32, 2, std::vector<float>(8, -0.0F));
  tensors.add("one", DType::float32, 2, std::vector<float>(8, 1));
  tensors.close();
  EXPECT_EQ(tensor_sums(tensors.pair("zero", "minus"), 1)->rel_l2(), 0);
  EXPECT_TRUE(std::isinf(tensor_sums(tensors.pair("zero", "one"), 1)->rel_l2()));
}

TEST(TensorPair, SampledRowsMeetTheRowsOfAFullTensor) {
  Tensors tensors;
  auto a = numbers(101 * 16, 7);
  tensors.add("full", DType::float32, 101, a);
  tensors.add("sampled", DType::float32, 101, a, 8);
  a[12 * 16 + 3] += 1; // row floor(1 * 101 / 8) = 12 is sampled
  a[13 * 16 + 3] += 1; // this one is not
  tensors.add("other", DType::float32, 101, a, 8);
  tensors.close();
  const auto same = tensors.pair("full", "sampled");
  EXPECT_TRUE(same.sampled());
  EXPECT_EQ(same.rows(), 8);
  EXPECT_EQ(tensor_sums(same, 1)->difference, 0);
  const auto detail = tensor_detail(tensors.pair("sampled", "other"), 1e-3, 5);
  ASSERT_EQ(detail->worst.size(), 1U);
  EXPECT_EQ(detail->worst[0].row, 12); // the segment's row, not the sample's
  EXPECT_EQ(detail->bad_rows, (Ranges{{12, 12}}));
}

TEST(TensorPair, RefusesWhatCannotBeReadInStep) {
  Tensors tensors;
  tensors.add("a", DType::float32, 4, numbers(64, 8));
  tensors.add("narrow", DType::float32, 4, numbers(32, 8));
  tensors.add("short", DType::float32, 2, numbers(32, 8));
  tensors.add("long", DType::uint8, 1, std::vector<std::uint8_t>((std::size_t{32} << 20) + 1));
  tensors.close();
  EXPECT_FALSE(TensorPair::match(tensors.get("a"), tensors.get("narrow")));
  EXPECT_FALSE(TensorPair::match(tensors.get("a"), tensors.get("short")));
  EXPECT_FALSE(TensorPair::match(tensors.get("long"), tensors.get("long")));
}

TEST(TensorDetail, NamesRowsColumnsAndTheWorstElementsWithTheirBits) {
  Tensors tensors;
  auto a = numbers(200 * 600, 9), b = a;
  for (std::size_t r = 40; r < 44; ++r)
    for (std::size_t c = 500; c < 510; ++c)
      b[r * 600 + c] = 0;
  a[41 * 600 + 505] = 2;
  a[43 * 600 + 501] = 2; // a tie: the earlier row first
  tensors.add("a", DType::float32, 200, a);
  tensors.add("b", DType::float32, 200, b);
  tensors.close();
  const auto detail = tensor_detail(tensors.pair("a", "b"), 1e-3, 3);
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->bad_rows, (Ranges{{40, 43}}));
  EXPECT_EQ(detail->bad_columns, (Ranges{{500, 509}}));
  ASSERT_EQ(detail->worst.size(), 3U);
  EXPECT_EQ(detail->worst[0].row, 41);
  EXPECT_EQ(detail->worst[0].column, 505);
  EXPECT_EQ(detail->worst[0].reference_hex, "0x40000000");
  EXPECT_EQ(detail->worst[0].candidate_hex, "0x00000000");
  EXPECT_EQ(detail->worst[1].row, 43);
}

TEST(EqualLeadingColumns, ComparesBytes) {
  Tensors tensors;
  std::vector<float> narrow = numbers(40, 10), wide;
  for (std::size_t r = 0; r < 10; ++r) {
    wide.insert(wide.end(), narrow.begin() + static_cast<std::ptrdiff_t>(4 * r),
                narrow.begin() + static_cast<std::ptrdiff_t>(4 * r + 4));
    wide.push_back(1);
  }
  tensors.add("narrow", DType::float32, 10, narrow);
  tensors.add("wide", DType::float32, 10, wide);
  wide[45] = -wide[45];
  tensors.add("other", DType::float32, 10, wide);
  tensors.close();
  EXPECT_TRUE(*equal_leading_columns(tensors.get("narrow"), tensors.get("wide"), 4));
  EXPECT_FALSE(*equal_leading_columns(tensors.get("narrow"), tensors.get("other"), 4));
}

TEST(Bands, MapBackToRows) {
  std::array<float, 16> a, b;
  a.fill(1);
  b = a;
  b[14] = b[15] = 2;
  EXPECT_EQ(bands_outside(a, b, 100, 0.1), (Ranges{{87, 99}})); // floor(14 * 100 / 16) = 87
  EXPECT_TRUE(bands_outside(a, a, 100, 0.1).empty());
  b.fill(3);
  EXPECT_TRUE(bands_outside(a, b, 100, 0.1).empty()); // all of them: nothing to locate
  a.fill(0);
  b.fill(0);
  a[5] = 1; // three rows stand in bands 5, 10 and 15
  EXPECT_EQ(bands_outside(a, b, 3, 0.1), (Ranges{{0, 0}}));
}

TEST(InWords, ReadsLikeText) {
  EXPECT_EQ(in_words({{8, 15}}), "8-15");
  EXPECT_EQ(in_words({{3, 3}}), "3");
  EXPECT_EQ(in_words({{0, 1}, {4, 4}, {6, 7}}), "0-1, 4 and 6-7");
}

} // namespace
} // namespace h3diff::goldens
