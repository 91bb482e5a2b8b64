#include "measure_tile.hpp"
#include <bit>

namespace h3diff::probes {
using namespace kernels;
namespace {

constexpr int round_up(int value, int to) { return (value + to - 1) / to * to; }

constexpr std::byte no_row[TileBuffer::row_bytes] = {};

template <class From, class To> void convert(const std::byte* raw, int count, std::byte* to) {
  for (int i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, raw + static_cast<std::size_t>(i) * sizeof from, sizeof from);
    const To value = static_cast<To>(from);
    std::memcpy(to + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
  }
}

} // namespace

std::uint64_t small_threshold(DType dtype) {
  const double normal = smallest_normal(dtype);
  if (normal == 0)
    return 1;
  return sums_as_double(dtype) ? std::bit_cast<std::uint64_t>(normal)
                               : std::bit_cast<std::uint32_t>(static_cast<float>(normal));
}

Rows raw_tile(const SegmentReader& reader, const std::byte* const start[block_rows], int rows, std::int64_t first_col,
              int cols, TileBuffer& buffer) {
  const int item = static_cast<int>(reader.item());
  const int bytes = cols * item, padded = round_up(round_up(bytes, 16), lanes * item);
  const bool direct = reader.contiguous() && bytes == padded;
  Rows out{};
  for (int r = 0; r < block_rows; ++r) {
    std::byte* to = buffer.row[r];
    out.row[r] = to;
    if (r >= rows) {
      out.row[r] = no_row;
    } else if (direct) {
      out.row[r] = start[r] + first_col * item;
    } else {
      reader.gather(start[r], first_col, cols, to);
      std::memset(to + bytes, 0, static_cast<std::size_t>(padded - bytes));
    }
  }
  return out;
}

const std::byte* widened(const Table& table, DType dtype, const std::byte* raw, int count, std::byte* buffer) {
  auto* floats = reinterpret_cast<float*>(buffer);
  switch (dtype) {
  case DType::float64:
  case DType::float32: return raw;
  case DType::bfloat16: table.bfloat16_to_float(raw, count, floats); break;
  case DType::float16: table.float16_to_float(raw, count, floats); break;
  case DType::float8_e4m3fn: table.e4m3fn_to_float(raw, count, floats); break;
  case DType::float8_e5m2: table.e5m2_to_float(raw, count, floats); break;
  case DType::int8: convert<std::int8_t, float>(raw, count, buffer); break;
  case DType::uint8: convert<std::uint8_t, float>(raw, count, buffer); break;
  case DType::boolean:
    for (int i = 0; i < count; ++i)
      floats[i] = raw[i] != std::byte{0} ? 1.0f : 0.0f;
    break;
  case DType::int32: convert<std::int32_t, double>(raw, count, buffer); break;
  case DType::int64: convert<std::int64_t, double>(raw, count, buffer); break;
  }
  return buffer;
}

Rows widened_tile(const Table& table, DType dtype, const Rows& raw, int cols, TileBuffer& buffer) {
  Rows out{};
  for (int r = 0; r < block_rows; ++r)
    out.row[r] = widened(table, dtype, raw.row[r], round_up(cols, lanes), buffer.row[r]);
  return out;
}

} // namespace h3diff::probes
