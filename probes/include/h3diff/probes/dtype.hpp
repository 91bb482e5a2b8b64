// Element types that probes understand. Names are those of docs/dump-format.md section 4.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace h3diff::probes {

enum class DType : std::uint8_t {
  float64,
  float32,
  bfloat16,
  float16,
  float8_e4m3fn,
  float8_e5m2,
  int8,
  uint8,
  int32,
  int64,
  boolean,
};
inline constexpr int dtype_count = 11;

std::size_t item_size(DType); // bytes per element
std::string_view name(DType); // "bfloat16"
std::optional<DType> parse_dtype(std::string_view);
bool is_floating(DType);
double unit_roundoff(DType);                  // 2^-(p), p the significand's bits incl. the hidden one; 0 for integers
double smallest_normal(DType);                // below it a floating value is subnormal; 0 for integers
double to_double(DType, const void* element); // exact

} // namespace h3diff::probes
