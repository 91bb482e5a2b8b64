#pragma once
#include "h3diff/probes/measure.hpp"

namespace h3diff::probes {

// The digest of a [rows, row_bytes] matrix from the sum over its units.
Digest with_shape(Digest units, std::int64_t rows, std::int64_t row_bytes);

} // namespace h3diff::probes
