#include "import_tensor.hpp"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <numeric>

namespace h3diff::cases {

using probes::DType;

namespace {

std::int64_t product(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

template <class T> void put(T value, std::byte* out) { std::memcpy(out, &value, sizeof value); }

struct SmallFloat {
  int bits, mantissa, bias;
  bool infinity;         // else the format saturates at `largest` and has one NaN pattern
  std::uint32_t largest; // bit pattern of the largest finite value
  std::uint32_t nan;
};

// Values that a format of fewer bits than a double's can hold, by arithmetic on the spacing at that size.
std::uint32_t encode(const SmallFloat& format, double value) {
  const std::uint32_t sign = std::signbit(value) ? std::uint32_t{1} << (format.bits - 1) : 0;
  if (std::isnan(value))
    return sign | format.nan;
  const double size = std::fabs(value);
  const std::uint32_t beyond = format.infinity ? format.largest + 1 : format.nan;
  if (std::isinf(size))
    return sign | beyond;
  if (size == 0)
    return sign;
  const int exponent = std::max(std::ilogb(size), 1 - format.bias);
  const double units = std::nearbyint(std::ldexp(size, format.mantissa - exponent)); // ties to even
  // The patterns of a format stand in the order of their values, so a carry into the exponent needs no care.
  const double pattern = units + std::ldexp(static_cast<double>(exponent + format.bias - 1), format.mantissa);
  return sign | (pattern > format.largest ? beyond : static_cast<std::uint32_t>(pattern));
}

constexpr SmallFloat bfloat16{16, 7, 127, true, 0x7F7F, 0x7FC0};
constexpr SmallFloat float16{16, 10, 15, true, 0x7BFF, 0x7E00};
constexpr SmallFloat float8_e5m2{8, 2, 15, true, 0x7B, 0x7F};
constexpr SmallFloat float8_e4m3fn{8, 3, 7, false, 0x7E, 0x7F};

template <class T> T integer(double value) {
  if (std::isnan(value))
    return 0;
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (value <= low)
    return std::numeric_limits<T>::min();
  return value >= high ? std::numeric_limits<T>::max() : static_cast<T>(value);
}

template <class F> ImportTensor mapped(const ImportTensor& from, DType dtype, F&& value_of) {
  std::byte* out = nullptr;
  ImportTensor to = allocate(dtype, from.shape, out);
  const std::size_t size = probes::item_size(from.dtype), target = probes::item_size(dtype);
  const std::int64_t count = from.elements();
  for (std::int64_t i = 0; i < count; ++i)
    store(dtype, value_of(probes::to_double(from.dtype, from.bytes.data() + static_cast<std::size_t>(i) * size)),
          out + static_cast<std::size_t>(i) * target);
  return to;
}

} // namespace

std::int64_t ImportTensor::elements() const { return product(shape); }

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

ImportTensor allocate(DType dtype, std::vector<std::int64_t> shape, std::byte*& out) {
  const std::size_t bytes = static_cast<std::size_t>(product(shape)) * probes::item_size(dtype);
  auto data = std::make_shared<std::vector<std::byte>>(bytes);
  out = data->data();
  return {dtype, std::move(shape), std::span<const std::byte>(*data), data};
}

void store(DType dtype, double value, std::byte* out) {
  switch (dtype) {
  case DType::float64: return put(value, out);
  case DType::float32:
    if (std::isnan(value))
      return put(std::bit_cast<float>(0x7FC00000u | (std::signbit(value) ? 0x80000000u : 0u)), out);
    return put(static_cast<float>(value), out);
  case DType::bfloat16: return put(static_cast<std::uint16_t>(encode(bfloat16, value)), out);
  case DType::float16: return put(static_cast<std::uint16_t>(encode(float16, value)), out);
  case DType::float8_e4m3fn: return put(static_cast<std::uint8_t>(encode(float8_e4m3fn, value)), out);
  case DType::float8_e5m2: return put(static_cast<std::uint8_t>(encode(float8_e5m2, value)), out);
  case DType::int8: return put(integer<std::int8_t>(value), out);
  case DType::uint8: return put(integer<std::uint8_t>(value), out);
  case DType::int32: return put(integer<std::int32_t>(value), out);
  case DType::int64: return put(integer<std::int64_t>(value), out);
  case DType::boolean: return put(static_cast<std::uint8_t>(value != 0), out);
  }
}

Flaw resolve_axis(const ImportTensor& tensor, std::int64_t& axis) {
  const auto dims = static_cast<std::int64_t>(tensor.shape.size());
  if (axis < -dims || axis >= dims)
    return fmt::format("axis {} is outside the shape {}", axis, shape_text(tensor.shape));
  axis += axis < 0 ? dims : 0;
  return std::nullopt;
}

Flaw transpose(ImportTensor& tensor, const std::vector<std::int64_t>& order) {
  const std::size_t dims = tensor.shape.size();
  std::vector<std::int64_t> sorted = order, count(dims);
  std::sort(sorted.begin(), sorted.end());
  std::iota(count.begin(), count.end(), std::int64_t{0});
  if (sorted != count)
    return fmt::format("the order {} is no permutation of the {} axes of shape {}", shape_text(order), dims,
                       shape_text(tensor.shape));
  std::vector<std::int64_t> strides(dims, 1), shape(dims), step(dims), at(dims, 0);
  for (std::size_t i = dims; i-- > 1;)
    strides[i - 1] = strides[i] * tensor.shape[i];
  for (std::size_t i = 0; i < dims; ++i) {
    shape[i] = tensor.shape[static_cast<std::size_t>(order[i])];
    step[i] = strides[static_cast<std::size_t>(order[i])];
  }
  std::byte* out = nullptr;
  ImportTensor result = allocate(tensor.dtype, shape, out);
  const std::size_t size = probes::item_size(tensor.dtype);
  std::int64_t source = 0;
  for (std::int64_t i = 0, n = result.elements(); i < n; ++i) {
    std::memcpy(out + static_cast<std::size_t>(i) * size, tensor.bytes.data() + static_cast<std::size_t>(source) * size,
                size);
    for (std::size_t d = dims; d-- > 0;) {
      source += step[d];
      if (++at[d] < shape[d])
        break;
      source -= step[d] * shape[d];
      at[d] = 0;
    }
  }
  tensor = std::move(result);
  return std::nullopt;
}

Flaw reshape(ImportTensor& tensor, const std::vector<std::int64_t>& wanted) {
  std::vector<std::int64_t> shape = wanted;
  std::int64_t known = 1, open = -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && open < 0)
      open = static_cast<std::int64_t>(i);
    else if (shape[i] < 0 || __builtin_mul_overflow(known, shape[i], &known))
      return fmt::format("{} is no shape", shape_text(wanted));
  }
  const std::int64_t elements = tensor.elements();
  if (open >= 0 && known > 0 && elements % known == 0) {
    shape[static_cast<std::size_t>(open)] = elements / known;
    known = elements;
  }
  if (known != elements)
    return fmt::format("shape {} does not reshape to {}", shape_text(tensor.shape), shape_text(wanted));
  tensor.shape = std::move(shape);
  return std::nullopt;
}

Flaw take(ImportTensor& tensor, std::int64_t axis, std::span<const std::int64_t> indices) {
  if (auto flaw = resolve_axis(tensor, axis))
    return flaw;
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t length = tensor.shape[at];
  for (const std::int64_t index : indices)
    if (index < 0 || index >= length)
      return fmt::format("index {} is outside axis {} of shape {}", index, axis, shape_text(tensor.shape));
  const std::span<const std::int64_t> sizes(tensor.shape);
  const std::int64_t outer = product(sizes.first(at));
  const std::size_t piece = static_cast<std::size_t>(product(sizes.subspan(at + 1))) * probes::item_size(tensor.dtype);
  std::vector<std::int64_t> shape = tensor.shape;
  shape[at] = static_cast<std::int64_t>(indices.size());
  std::byte* out = nullptr;
  ImportTensor result = allocate(tensor.dtype, shape, out);
  for (std::int64_t o = 0; o < outer; ++o)
    for (const std::int64_t index : indices) {
      if (piece > 0)
        std::memcpy(out, tensor.bytes.data() + static_cast<std::size_t>(o * length + index) * piece, piece);
      out += piece;
    }
  tensor = std::move(result);
  return std::nullopt;
}

Flaw negate(ImportTensor& tensor) {
  if (!probes::is_floating(tensor.dtype))
    return fmt::format("{} is not negated; only floating values are", probes::name(tensor.dtype));
  std::byte* out = nullptr;
  ImportTensor result = allocate(tensor.dtype, tensor.shape, out);
  std::copy(tensor.bytes.begin(), tensor.bytes.end(), out);
  const std::size_t size = probes::item_size(tensor.dtype);
  for (std::size_t last = size - 1; last < tensor.bytes.size(); last += size)
    out[last] ^= std::byte{0x80}; // the sign bit, so that NaN payloads survive
  tensor = std::move(result);
  return std::nullopt;
}

Flaw scale(ImportTensor& tensor, double by) {
  if (!probes::is_floating(tensor.dtype))
    return fmt::format("{} is not scaled; only floating values are", probes::name(tensor.dtype));
  tensor = mapped(tensor, tensor.dtype, [by](double value) { return value * by; });
  return std::nullopt;
}

Flaw cast(ImportTensor& tensor, DType dtype) {
  if (dtype != tensor.dtype)
    tensor = mapped(tensor, dtype, [](double value) { return value; });
  return std::nullopt;
}

Flaw concatenate(std::vector<ImportTensor>& parts, std::int64_t axis) {
  if (auto flaw = resolve_axis(parts.front(), axis))
    return flaw;
  const auto at = static_cast<std::size_t>(axis);
  std::vector<std::int64_t> shape = parts.front().shape;
  shape[at] = 0;
  for (const ImportTensor& part : parts) {
    std::vector<std::int64_t> others = part.shape;
    if (others.size() == shape.size()) {
      others[at] = shape[at];
      if (others == shape && part.dtype == parts.front().dtype) {
        shape[at] += part.shape[at];
        continue;
      }
    }
    return fmt::format("{} {} and {} {} do not concatenate along axis {}", probes::name(parts.front().dtype),
                       shape_text(parts.front().shape), probes::name(part.dtype), shape_text(part.shape), axis);
  }
  std::byte* out = nullptr;
  ImportTensor result = allocate(parts.front().dtype, shape, out);
  const std::int64_t outer = product(std::span<const std::int64_t>(shape).first(at));
  for (std::int64_t o = 0; o < outer; ++o)
    for (const ImportTensor& part : parts) {
      const std::size_t piece = part.bytes.size() / static_cast<std::size_t>(outer);
      if (piece > 0)
        std::memcpy(out, part.bytes.data() + static_cast<std::size_t>(o) * piece, piece);
      out += piece;
    }
  parts = {std::move(result)};
  return std::nullopt;
}

Flaw add(std::vector<ImportTensor>& parts) {
  const ImportTensor& first = parts.front();
  for (const ImportTensor& part : parts)
    if (part.shape != first.shape || part.dtype != first.dtype)
      return fmt::format("{} {} and {} {} do not add up", probes::name(first.dtype), shape_text(first.shape),
                         probes::name(part.dtype), shape_text(part.shape));
  if (!probes::is_floating(first.dtype))
    return fmt::format("{} is not added; only floating values are", probes::name(first.dtype));
  std::byte* out = nullptr;
  ImportTensor result = allocate(first.dtype, first.shape, out);
  const std::size_t size = probes::item_size(first.dtype);
  for (std::size_t i = 0; i < first.bytes.size(); i += size) {
    double sum = 0;
    for (const ImportTensor& part : parts)
      sum += probes::to_double(part.dtype, part.bytes.data() + i);
    store(first.dtype, sum, out + i);
  }
  parts = {std::move(result)};
  return std::nullopt;
}

} // namespace h3diff::cases
