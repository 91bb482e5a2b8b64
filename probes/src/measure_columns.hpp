#pragma once
#include "h3diff/probes/measure.hpp"
#include "measure_rows.hpp"

namespace h3diff::probes {

// A measurement of every column of the segment, each as a [rows, 1] tensor.
std::vector<ColumnMeasurement> measure_columns(const SegmentReader&, DType, int threads);

} // namespace h3diff::probes
