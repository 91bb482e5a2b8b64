// The digest against a naive implementation written from docs/dump-format.md section 7, and what it must notice.
#include "measure_support.hpp"
#include <gtest/gtest.h>

using namespace h3diff::probes;
using namespace h3diff::probes::test;

namespace {

Digest naive(const Bytes& data, std::int64_t rows, std::int64_t row_bytes) {
  const std::uint32_t p[16] = {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0,
                               0x082EFA98, 0xEC4E6C89, 0x452821E6, 0x38D01377, 0xBE5466CF, 0x34E90C6C,
                               0xC0AC29B7, 0xC97C50DD, 0x3F84D5B5, 0xB5470917};
  const auto f = [](std::uint64_t h, std::uint64_t k) {
    h ^= h >> 32;
    h *= k;
    h ^= h >> 32;
    return h;
  };
  const std::int64_t chunks = (row_bytes + 15) / 16, blocks = (rows + 3) / 4;
  std::uint64_t a = 0, b = 0;
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      std::uint32_t w[16] = {};
      for (std::int64_t row = 0; row < 4; ++row)
        for (std::int64_t byte = 0; byte < 16; ++byte) {
          const std::int64_t r = block * 4 + row, c = chunk * 16 + byte;
          if (r >= rows || c >= row_bytes)
            continue;
          w[row * 4 + byte / 4] |= static_cast<std::uint32_t>(data[static_cast<std::size_t>(r * row_bytes + c)])
                                   << (8 * (byte % 4));
        }
      const auto u = static_cast<std::uint32_t>(block * chunks + chunk);
      std::uint32_t x = u * 0x9E3779B1u + 0x243F6A88u;
      x ^= x >> 16;
      x *= 0x7FEB352Du;
      x ^= x >> 15;
      x *= 0x846CA68Bu;
      x ^= x >> 16;
      std::uint32_t y = x * 0x9E3779B1u + 0x85A308D3u;
      y ^= y >> 15;
      std::uint32_t m[16];
      for (std::size_t j = 0; j < 16; ++j)
        m[j] = w[j] ^ (j % 2 == 1 ? y : x) ^ p[j];
      std::uint64_t s = 0, t = 0;
      for (std::size_t j = 0; j < 16; j += 2) {
        s += std::uint64_t{m[j]} * m[j + 1];
        t += std::uint64_t{m[j]} * m[(j + 3) % 16];
      }
      a += f(s, 0x9E3779B97F4A7C15);
      b += f(t, 0xC2B2AE3D27D4EB4F);
    }
  const std::uint64_t l0 = 0x165667B19E3779F9, l1 = 0x27D4EB2F165667C5;
  const auto r = static_cast<std::uint64_t>(rows), c = static_cast<std::uint64_t>(row_bytes);
  return {a + r * l0 + c * l1, b + r * l1 + c * l0};
}

Digest digest_of(const TensorView& view, int threads = 1) {
  MeasureOptions options;
  options.statistics = false;
  options.sketch_k = 0;
  options.threads = threads;
  const RowRange all{0, view.rows()};
  return measure(view, {&all, 1}, options).digest;
}

} // namespace

TEST(Digest, CheckValues) {
  const IsaGuard guard;
  for (const kernels::Isa isa : isas()) {
    kernels::choose_isa(isa);
    EXPECT_EQ(digest_bytes(nullptr, 0, 0).hex(), "00000000000000000000000000000000");
    const std::uint8_t zero = 0, one = 1;
    EXPECT_EQ(digest_bytes(&zero, 1, 1).hex(), "821295fcf5ed867af1004d6131041cc8");
    EXPECT_EQ(digest_bytes(&one, 1, 1).hex(), "4aa3f135b3f95c3f911ba4c5589b4dbe");
    Bytes counting(15), sevens(200);
    for (std::size_t i = 0; i < counting.size(); ++i)
      counting[i] = static_cast<std::uint8_t>(i);
    for (std::size_t i = 0; i < sevens.size(); ++i)
      sevens[i] = static_cast<std::uint8_t>(7 * i);
    EXPECT_EQ(digest_bytes(counting.data(), 3, 5).hex(), "45055e580eb0ce0751968991355bffa6");
    EXPECT_EQ(digest_bytes(sevens.data(), 5, 40).hex(), "5c7859a5bf99f55936ee8e4df01591b0");
    std::vector<std::uint16_t> brain(120);
    for (std::size_t i = 0; i < brain.size(); ++i) {
      const float value = static_cast<float>(static_cast<int>(i) - 60) / 7.0f;
      const auto bits = std::bit_cast<std::uint32_t>(value);
      brain[i] = static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16); // to nearest even
    }
    EXPECT_EQ(digest_of(TensorView::contiguous(brain.data(), DType::bfloat16, 10, 12)).hex(),
              "5768b19506bc73200d364461cdae5680");
  }
}

TEST(Digest, HexAndBack) {
  const Digest digest{0x0123456789ABCDEF, 0xFEDCBA9876543210};
  EXPECT_EQ(digest.hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Digest::parse(digest.hex()), digest);
  EXPECT_FALSE(Digest::parse(""));
  EXPECT_FALSE(Digest::parse("0123456789abcdeffedcba987654321"));
  EXPECT_FALSE(Digest::parse("0123456789abcdeffedcba98765432100"));
  EXPECT_FALSE(Digest::parse("0123456789ABCDEFFEDCBA9876543210"));
  EXPECT_FALSE(Digest::parse("0123456789abcdeffedcba987654321g"));
}

TEST(Digest, AgreesWithTheSpecificationForAllTypesShapesAndStrides) {
  const IsaGuard guard;
  std::uint64_t seed = 1;
  for (const DType dtype : all_dtypes())
    for (const std::int64_t rows : {0, 1, 3, 4, 5, 9, 70})
      for (const std::int64_t cols : {0, 1, 2, 7, 8, 33, 66, 512, 520, 1100}) {
        const Bytes data = random_tensor(dtype, rows * cols, ++seed, true);
        const auto row_bytes = cols * static_cast<std::int64_t>(item_size(dtype));
        const Digest expected = naive(data, rows, row_bytes);
        EXPECT_EQ(digest_bytes(data.data(), rows, row_bytes), expected);
        for (const Laid& laid : layouts(data, dtype, rows, cols))
          for (const kernels::Isa isa : isas()) {
            kernels::choose_isa(isa);
            EXPECT_EQ(digest_of(laid.view), expected) << name(dtype) << " " << rows << "x" << cols << " " << laid.name;
          }
      }
}

TEST(Digest, LargeTensorsAndThreads) {
  const std::int64_t rows = 1021, cols = 1300;
  const Bytes data = random_tensor(DType::bfloat16, rows * cols, 5, true);
  const Digest expected = naive(data, rows, cols * 2);
  const auto view = TensorView::contiguous(data.data(), DType::bfloat16, rows, cols);
  for (const int threads : {1, 2, 3, 8})
    EXPECT_EQ(digest_of(view, threads), expected);
}

// Unit numbers count modulo 2^32 and byte counts go beyond 2^31. One row of zeros stands for all of them.
TEST(Digest, MoreThanTwoToThe31Elements) {
  const std::vector<std::uint8_t> zeros(1 << 20, 0);
  TensorView view = TensorView::contiguous(zeros.data(), DType::uint8, 2100, 1 << 20);
  view.strides = {0, 1};
  const Digest whole = digest_of(view, 2);
  // The same sum by hand: a unit of zeros depends on its number alone.
  std::uint64_t a = 0, b = 0;
  const Bytes nothing(64, 0);
  const std::uint64_t units = 2100 / 4 * ((1 << 20) / 16);
  for (std::uint64_t unit = 0; unit < units; ++unit) {
    const kernels::Rows four{
        {reinterpret_cast<const std::byte*>(nothing.data()), reinterpret_cast<const std::byte*>(nothing.data()),
         reinterpret_cast<const std::byte*>(nothing.data()), reinterpret_cast<const std::byte*>(nothing.data())}};
    kernels::table(kernels::Isa::portable).digest(four, 1, static_cast<std::uint32_t>(unit), a, b);
  }
  const std::uint64_t l0 = 0x165667B19E3779F9, l1 = 0x27D4EB2F165667C5;
  EXPECT_EQ(whole, (Digest{a + 2100 * l0 + (1u << 20) * l1, b + 2100 * l1 + (1u << 20) * l0}));
}

TEST(Digest, AnyFlippedBitShows) {
  Random random(9);
  for (int trial = 0; trial < 20000; ++trial) {
    const std::int64_t rows = 1 + random.below(9), row_bytes = 1 + random.below(70);
    Bytes data(static_cast<std::size_t>(rows * row_bytes));
    for (auto& byte : data)
      byte = static_cast<std::uint8_t>(random.bits());
    const Digest before = digest_bytes(data.data(), rows, row_bytes);
    const auto bit = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(data.size()) * 8));
    data[bit / 8] = static_cast<std::uint8_t>(data[bit / 8] ^ (1u << (bit % 8)));
    const Digest after = digest_bytes(data.data(), rows, row_bytes);
    EXPECT_NE(before.a, after.a);
    EXPECT_NE(before.b, after.b);
  }
}

TEST(Digest, SwapsSignsOfZeroAndShapesShow) {
  Random random(10);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::int64_t rows = 2 + random.below(12), cols = 1 + random.below(40);
    std::vector<float> data(static_cast<std::size_t>(rows * cols));
    for (float& value : data)
      value = static_cast<float>(random.normal());
    const auto digest = [&] { return digest_bytes(data.data(), rows, cols * 4); };
    const Digest before = digest();
    const std::int64_t first = random.below(rows), second = (first + 1 + random.below(rows - 1)) % rows;
    std::swap_ranges(data.begin() + first * cols, data.begin() + (first + 1) * cols, data.begin() + second * cols);
    EXPECT_NE(digest(), before) << "rows " << first << " and " << second;
    std::swap_ranges(data.begin() + first * cols, data.begin() + (first + 1) * cols, data.begin() + second * cols);
    EXPECT_EQ(digest(), before);
    const auto at = static_cast<std::size_t>(random.below(rows * cols));
    data[at] = 0.0f;
    const Digest plus = digest();
    data[at] = -0.0f;
    EXPECT_NE(digest(), plus);
    EXPECT_NE(digest_bytes(data.data(), rows, cols * 4), digest_bytes(data.data(), rows * 2, cols * 2));
    if (rows != cols) {
      EXPECT_NE(digest_bytes(data.data(), rows, cols * 4), digest_bytes(data.data(), cols, rows * 4));
    }
  }
}

TEST(Digest, AddedZeroRowsAndColumnsShow) {
  const Bytes zeros(4096, 0);
  std::vector<std::string> seen;
  for (std::int64_t rows = 0; rows < 9; ++rows)
    for (std::int64_t row_bytes = 0; row_bytes < 40; ++row_bytes)
      seen.push_back(digest_bytes(zeros.data(), rows, row_bytes).hex());
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}
