// Stored elements to float64, exactly.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include <cstdint>
#include <string>

namespace h3diff::goldens {

void to_doubles(probes::DType, const void* elements, std::int64_t count, double* out);

// The element's bits, most significant digit first: "0x3f800000".
std::string hex_of(probes::DType, const void* element);

} // namespace h3diff::goldens
