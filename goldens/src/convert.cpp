#include "convert.hpp"
#include <array>
#include <cstring>
#include <vector>

namespace h3diff::goldens {

using probes::DType;

namespace {

template <class T> void cast_all(const void* elements, std::int64_t count, double* out) {
  const auto* bytes = static_cast<const unsigned char*>(elements);
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    out[i] = static_cast<double>(value);
  }
}

void from_bfloat16(const void* elements, std::int64_t count, double* out) {
  const auto* bytes = static_cast<const unsigned char*>(elements);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes + i * 2, 2);
    const std::uint32_t word = static_cast<std::uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    out[i] = static_cast<double>(value);
  }
}

// Every value of a type of at most 16 bits, made once by the definition in probes.
template <class Word> std::vector<double> table(DType dtype) {
  std::vector<double> values(std::size_t{1} << (8 * sizeof(Word)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Word word = static_cast<Word>(i);
    values[i] = probes::to_double(dtype, &word);
  }
  return values;
}

template <class Word>
void look_up(const std::vector<double>& values, const void* elements, std::int64_t count, double* out) {
  const auto* bytes = static_cast<const unsigned char*>(elements);
  for (std::int64_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, bytes + i * sizeof(Word), sizeof(Word));
    out[i] = values[word];
  }
}

} // namespace

void to_doubles(DType dtype, const void* elements, std::int64_t count, double* out) {
  switch (dtype) {
  case DType::float64: return cast_all<double>(elements, count, out);
  case DType::float32: return cast_all<float>(elements, count, out);
  case DType::int32: return cast_all<std::int32_t>(elements, count, out);
  case DType::int64: return cast_all<std::int64_t>(elements, count, out);
  case DType::int8: return cast_all<std::int8_t>(elements, count, out);
  case DType::uint8: return cast_all<std::uint8_t>(elements, count, out);
  case DType::bfloat16: return from_bfloat16(elements, count, out);
  case DType::float16: {
    static const auto values = table<std::uint16_t>(DType::float16);
    return look_up<std::uint16_t>(values, elements, count, out);
  }
  case DType::float8_e4m3fn: {
    static const auto values = table<std::uint8_t>(DType::float8_e4m3fn);
    return look_up<std::uint8_t>(values, elements, count, out);
  }
  case DType::float8_e5m2: {
    static const auto values = table<std::uint8_t>(DType::float8_e5m2);
    return look_up<std::uint8_t>(values, elements, count, out);
  }
  case DType::boolean: {
    static const auto values = table<std::uint8_t>(DType::boolean);
    return look_up<std::uint8_t>(values, elements, count, out);
  }
  }
}

std::string hex_of(DType dtype, const void* element) {
  static constexpr char digits[] = "0123456789abcdef";
  const auto* bytes = static_cast<const unsigned char*>(element);
  std::string text = "0x";
  for (std::size_t i = probes::item_size(dtype); i-- > 0;) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

} // namespace h3diff::goldens
