#include "verify.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace h3diff::goldens {

namespace {

constexpr std::array<std::uint32_t, 16> pads = {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0,
                                                0x082EFA98, 0xEC4E6C89, 0x452821E6, 0x38D01377, 0xBE5466CF, 0x34E90C6C,
                                                0xC0AC29B7, 0xC97C50DD, 0x3F84D5B5, 0xB5470917};

std::uint64_t finished(std::uint64_t h, std::uint64_t factor) {
  h ^= h >> 32;
  h *= factor;
  return h ^ (h >> 32);
}

} // namespace

void RowDigest::add(const std::byte* rows, std::int64_t count) {
  const std::int64_t chunks = (row_bytes_ + 15) / 16;
  for (std::int64_t r = 0; r < count; r += 4)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      std::array<std::uint32_t, 16> w{};
      const std::int64_t bytes = std::min<std::int64_t>(16, row_bytes_ - chunk * 16);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(4, count - r); ++i)
        std::memcpy(&w[static_cast<std::size_t>(4 * i)], rows + (r + i) * row_bytes_ + chunk * 16,
                    static_cast<std::size_t>(bytes));
      const auto unit = static_cast<std::uint32_t>((rows_ + r) / 4 * chunks + chunk);
      std::uint32_t x = unit * 0x9E3779B1u + 0x243F6A88u;
      x ^= x >> 16;
      x *= 0x7FEB352Du;
      x ^= x >> 15;
      x *= 0x846CA68Bu;
      x ^= x >> 16;
      std::uint32_t y = x * 0x9E3779B1u + 0x85A308D3u;
      y ^= y >> 15;
      std::array<std::uint64_t, 16> m;
      for (std::size_t j = 0; j < 16; ++j)
        m[j] = w[j] ^ (j % 2 ? y : x) ^ pads[j];
      std::uint64_t s = 0, t = 0;
      for (std::size_t j = 0; j < 16; j += 2) {
        s += m[j] * m[j + 1];
        t += m[j] * m[(j + 3) % 16];
      }
      a_ += finished(s, 0x9E3779B97F4A7C15);
      b_ += finished(t, 0xC2B2AE3D27D4EB4F);
    }
  rows_ += count;
}

probes::Digest RowDigest::finish() const {
  constexpr std::uint64_t l0 = 0x165667B19E3779F9, l1 = 0x27D4EB2F165667C5;
  const auto rows = static_cast<std::uint64_t>(rows_), bytes = static_cast<std::uint64_t>(row_bytes_);
  return {a_ + rows * l0 + bytes * l1, b_ + rows * l1 + bytes * l0};
}

Result<void> verify_tensors(const probes::DumpReader& dump) {
  constexpr std::int64_t buffer_bytes = std::int64_t{1} << 20, longest_row = std::int64_t{32} << 20;
  for (const auto& row : dump.index()) {
    if (row.level != probes::Level::full)
      continue;
    auto tensor = dump.tensor(row);
    if (!tensor)
      return tensor.error();
    if (!*tensor || (*tensor)->dtype != row.dtype || (*tensor)->sampled_of > 0)
      continue;
    const probes::StoredTensor& stored = **tensor;
    if (stored.cols > longest_row)
      continue;
    const std::int64_t row_bytes = stored.cols * static_cast<std::int64_t>(probes::item_size(stored.dtype));
    if (row_bytes > longest_row)
      continue;
    const std::int64_t rows = std::max<std::int64_t>(1, buffer_bytes / std::max<std::int64_t>(1, 4 * row_bytes)) * 4;
    std::vector<std::byte> buffer(static_cast<std::size_t>(rows * row_bytes));
    RowDigest digest(row_bytes);
    for (std::int64_t begin = 0; begin < stored.rows; begin += rows) {
      const std::int64_t count = std::min(rows, stored.rows - begin);
      if (auto read = stored.read_rows(begin, count, buffer.data()); !read)
        return read.error();
      digest.add(buffer.data(), count);
    }
    if (digest.finish() != row.digest)
      return bad_input(fmt::format("{}: the tensor of {} (step {}, {}) has digest {}, the index says {}", dump.path(),
                                   probes::printable(row.probe), row.step, probes::name(row.segment),
                                   digest.finish().hex(), row.digest.hex()));
  }
  return {};
}

} // namespace h3diff::goldens
