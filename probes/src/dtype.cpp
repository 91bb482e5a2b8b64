#include "h3diff/probes/dtype.hpp"
#include <array>
#include <bit>
#include <cstring>

namespace h3diff::probes {
namespace {

struct Format {
  std::string_view name;
  std::size_t size;
  bool floating;
  int significand; // bits, with the hidden one
  double smallest_normal;
};

constexpr std::array<Format, dtype_count> formats{{
    {"float64", 8, true, 53, 0x1p-1022},
    {"float32", 4, true, 24, 0x1p-126},
    {"bfloat16", 2, true, 8, 0x1p-126},
    {"float16", 2, true, 11, 0x1p-14},
    {"float8_e4m3fn", 1, true, 4, 0x1p-6},
    {"float8_e5m2", 1, true, 3, 0x1p-14},
    {"int8", 1, false, 0, 0},
    {"uint8", 1, false, 0, 0},
    {"int32", 4, false, 0, 0},
    {"int64", 8, false, 0, 0},
    {"bool", 1, false, 0, 0},
}};

const Format& format(DType dtype) { return formats[static_cast<std::size_t>(dtype)]; }

template <class T> T read(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

// Exact in float32: the exponent is moved up by a multiplication, which also normalises subnormals.
float half_to_float(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7FFFu;
  float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  if (magnitude >= 0x7C00u)
    value = std::bit_cast<float>((magnitude << 13) | 0x7F800000u);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (static_cast<std::uint32_t>(half & 0x8000u) << 16));
}

// e4m3fn: bias 7, no infinities, NaN only as S.1111.111.
float e4m3_to_float(std::uint8_t bits) {
  if ((bits & 0x7Fu) == 0x7Fu)
    return std::bit_cast<float>((static_cast<std::uint32_t>(bits & 0x80u) << 24) | 0x7FC00000u);
  const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0x7Fu) << 20) * 0x1p120f;
  return (bits & 0x80u) != 0 ? -value : value;
}

} // namespace

std::size_t item_size(DType dtype) { return format(dtype).size; }
std::string_view name(DType dtype) { return format(dtype).name; }
bool is_floating(DType dtype) { return format(dtype).floating; }
double smallest_normal(DType dtype) { return format(dtype).smallest_normal; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (std::size_t i = 0; i < formats.size(); ++i)
    if (formats[i].name == text)
      return static_cast<DType>(i);
  return std::nullopt;
}

double unit_roundoff(DType dtype) {
  const Format& f = format(dtype);
  if (!f.floating)
    return 0;
  double value = 1;
  for (int bit = 0; bit < f.significand; ++bit)
    value /= 2;
  return value;
}

double to_double(DType dtype, const void* element) {
  switch (dtype) {
  case DType::float64: return read<double>(element);
  case DType::float32: return static_cast<double>(read<float>(element));
  case DType::bfloat16:
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(read<std::uint16_t>(element)) << 16));
  case DType::float16: return static_cast<double>(half_to_float(read<std::uint16_t>(element)));
  case DType::float8_e4m3fn: return static_cast<double>(e4m3_to_float(read<std::uint8_t>(element)));
  case DType::float8_e5m2: // the upper half of a float16
    return static_cast<double>(half_to_float(static_cast<std::uint16_t>(read<std::uint8_t>(element) << 8)));
  case DType::int8: return read<std::int8_t>(element);
  case DType::uint8: return read<std::uint8_t>(element);
  case DType::int32: return read<std::int32_t>(element);
  case DType::int64: return static_cast<double>(read<std::int64_t>(element));
  case DType::boolean: return read<std::uint8_t>(element) != 0 ? 1.0 : 0.0;
  }
  return 0;
}

} // namespace h3diff::probes
