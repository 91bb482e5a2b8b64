// A tensor on its way into a dump, and what a map may do to it. Every function checks what it is asked for and answers
// with the flaw alone; the caller knows the file and the name.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace h3diff::cases {

// Contiguous, row-major. Copies share the elements.
struct ImportTensor {
  probes::DType dtype = probes::DType::float32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner; // keeps `bytes` alive

  std::int64_t elements() const;
};

using Flaw = std::optional<std::string>; // what is wrong, or nothing

std::string shape_text(const std::vector<std::int64_t>&); // "[3,4]"
ImportTensor allocate(probes::DType, std::vector<std::int64_t> shape, std::byte*& out);

// Negative axes count from the end.
Flaw resolve_axis(const ImportTensor&, std::int64_t& axis);

Flaw transpose(ImportTensor&, const std::vector<std::int64_t>& order);
Flaw reshape(ImportTensor&, const std::vector<std::int64_t>& shape); // one -1 is deduced
// Indices along an axis, in the order given.
Flaw take(ImportTensor&, std::int64_t axis, std::span<const std::int64_t> indices);
Flaw negate(ImportTensor&);
Flaw scale(ImportTensor&, double by); // rounded once to the tensor's dtype
Flaw cast(ImportTensor&, probes::DType);
Flaw concatenate(std::vector<ImportTensor>& parts, std::int64_t axis); // leaves one
Flaw add(std::vector<ImportTensor>& parts);                            // summed in float64, rounded once; leaves one

// `value` rounded to nearest even in `dtype`; integers saturate and lose their fraction, NaN becomes 0 there.
void store(probes::DType dtype, double value, std::byte* out);

} // namespace h3diff::cases
