// Digest: docs/dump-format.md section 7. The inner loop is in measure_kernels.inc.
#include "digest_total.hpp"
#include <array>

namespace h3diff::probes {
namespace {

constexpr std::uint64_t length_factor_0 = 0x165667B19E3779F9, length_factor_1 = 0x27D4EB2F165667C5;

void put_hex(std::uint64_t value, char* to) {
  for (int i = 15; i >= 0; --i, value >>= 4)
    to[i] = "0123456789abcdef"[value & 15];
}

std::optional<std::uint64_t> get_hex(std::string_view text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    int digit = 0;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else
      return std::nullopt;
    value = value << 4 | static_cast<std::uint64_t>(digit);
  }
  return value;
}

} // namespace

std::string Digest::hex() const {
  std::array<char, 32> text;
  put_hex(a, text.data());
  put_hex(b, text.data() + 16);
  return {text.data(), text.size()};
}

std::optional<Digest> Digest::parse(std::string_view hex) {
  if (hex.size() != 32)
    return std::nullopt;
  const auto a = get_hex(hex.substr(0, 16)), b = get_hex(hex.substr(16));
  if (!a || !b)
    return std::nullopt;
  return Digest{*a, *b};
}

Digest with_shape(Digest units, std::int64_t rows, std::int64_t row_bytes) {
  const auto r = static_cast<std::uint64_t>(rows), c = static_cast<std::uint64_t>(row_bytes);
  units.a += r * length_factor_0 + c * length_factor_1;
  units.b += r * length_factor_1 + c * length_factor_0;
  return units;
}

Digest digest_bytes(const void* data, std::int64_t rows, std::int64_t row_bytes) {
  const RowRange all{0, rows};
  MeasureOptions options;
  options.statistics = false;
  options.sketch_k = 0;
  return measure(TensorView::contiguous(data, DType::uint8, rows, row_bytes), {&all, 1}, options).digest;
}

} // namespace h3diff::probes
