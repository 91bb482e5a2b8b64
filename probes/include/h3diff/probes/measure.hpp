// Statistics, digest and sketch of a segment in one pass over memory, on the CPU.
// Formulas: docs/dump-format.md sections 7 to 9. Results do not depend on the number of threads, on the
// instruction set or on strides.
#pragma once
#include "h3diff/probes/segments.hpp"
#include "h3diff/probes/tensor_view.hpp"
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace h3diff::probes {

struct Digest {
  std::uint64_t a = 0, b = 0;
  bool operator==(const Digest&) const = default;
  std::string hex() const; // 32 lower-case digits
  static std::optional<Digest> parse(std::string_view hex);
};

struct Statistics {
  static constexpr double undefined = std::numeric_limits<double>::quiet_NaN();
  std::int64_t count = 0, zeros = 0, nan = 0, inf = 0, subnormal = 0;
  double mean = undefined, std = undefined, l2 = 0, min = undefined, max = undefined, absmax = undefined;
  std::int64_t absmax_row = -1, absmax_col = -1;
  std::array<float, 16> row_bands{}, col_groups{};
};

struct ColumnMeasurement {
  std::int32_t column = 0;
  Digest digest;
  std::int64_t zeros = 0, nan = 0, inf = 0;
  double mean = Statistics::undefined, std = Statistics::undefined, l2 = 0, min = Statistics::undefined,
         max = Statistics::undefined, absmax = Statistics::undefined;
};

struct MeasureOptions {
  bool statistics = true;
  int sketch_k = 256; // 0, 64, 128 or 256; 0 unless statistics
  bool columns = false;
  int threads = 1;
};

struct Measurement {
  std::int64_t rows = 0, cols = 0;
  Digest digest;
  Statistics statistics;                  // meaningful if asked for
  std::vector<double> sketch;             // sketch_k buckets, not yet rounded to float32
  std::vector<ColumnMeasurement> columns; // one per column if asked for
};

// `ranges` select rows of `view` (RowRange in rows of the view), in the segment's order.
Measurement measure(const TensorView& view, std::span<const RowRange> ranges, const MeasureOptions&);

// The digest alone of a plain byte matrix.
Digest digest_bytes(const void* data, std::int64_t rows, std::int64_t row_bytes);

// dot(a, b) / (|a| |b|) over the finite pairs of two tensors of one shape, in float64; NaN if a norm is 0.
double cosine(const TensorView& a, const TensorView& b, std::span<const RowRange> ranges);

// True if every value of a float32 (float64) tensor is exactly a value of `narrow`, NaN payloads aside.
bool narrowing_is_lossless(const TensorView&, std::span<const RowRange> ranges, DType narrow);

struct SketchDistance {
  double squared = 0; // D2: estimate of the squared L2 distance
  double error = 0;   // bound on |squared - true|, docs/dump-format.md section 9
};
SketchDistance sketch_distance(std::span<const float> a, std::span<const float> b);

} // namespace h3diff::probes
