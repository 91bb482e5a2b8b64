#include "h3diff/cases/philox.hpp"
#include "sha256.hpp"
#include <fmt/format.h>

namespace h3diff::cases {
namespace {

// Inlined into the fill loops: one call per element is all a synthetic weight costs.
[[gnu::always_inline]] inline std::array<std::uint32_t, 4> rounds(std::array<std::uint32_t, 4> c,
                                                                  std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

[[gnu::always_inline]] inline float normal_at(std::uint64_t index, std::array<std::uint32_t, 2> key) {
  const auto word = rounds({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0}, key);
  std::uint32_t sum = 0;
  for (const std::uint32_t w : word)
    sum += (w & 0xFFFF) + (w >> 16);
  // The centred sum is an integer below 2^19, exact in float32; one multiplication rounds.
  constexpr float scale = 0x1.3988e2p-16f; // 1 / sqrt(8 * (2^32 - 1) / 12) = 1 / 53509.92...
  return static_cast<float>(static_cast<std::int32_t>(sum) - 262140) * scale;
}

} // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  return rounds(counter, key);
}

TensorStream::TensorStream(std::uint64_t seed, std::string_view tensor_name) {
  Sha256 hash;
  hash.update(fmt::format("{}\n{}", seed, tensor_name));
  const auto bytes = hash.digest();
  for (std::size_t word = 0; word < 2; ++word)
    key_[word] = static_cast<std::uint32_t>(bytes[4 * word]) | static_cast<std::uint32_t>(bytes[4 * word + 1]) << 8 |
                 static_cast<std::uint32_t>(bytes[4 * word + 2]) << 16 |
                 static_cast<std::uint32_t>(bytes[4 * word + 3]) << 24;
}

float TensorStream::normal(std::uint64_t index) const { return normal_at(index, key_); }

void TensorStream::normals(std::uint64_t begin, std::span<float> out) const {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = normal_at(begin + i, key_);
}

float TensorStream::uniform(std::uint64_t index) const {
  const auto word = rounds({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 1, 0}, key_);
  return static_cast<float>(word[0] >> 8) * 0x1p-24f;
}

} // namespace h3diff::cases
