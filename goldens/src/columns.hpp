// Judges the AdaLN weights column by column: a padded table looks healthy as a whole.
#pragma once
#include "locate.hpp"
#include "h3diff/probes/dump.hpp"
#include <string>
#include <vector>

namespace h3diff::goldens {

// Errors of two producers' statistics together, relative to the tensors' l2 (docs/dump-format.md section 8).
inline constexpr double cpu_slack = 1e-12, accelerator_slack = 2e-6;

// A lower bound of |a - b| of two tensors of `count` elements, from their statistics alone.
double statistics_distance(double count, double l2_a, double mean_a, double std_a, double absmax_a, double l2_b,
                           double mean_b, double std_b, double absmax_b, double slack = cpu_slack);

// What a run of columns looks like together.
struct ColumnsLook {
  std::int64_t columns = 0;
  double absmax = 0, std = 0; // std over all elements of those columns
};

struct ColumnsVerdict {
  bool known = false;          // both dumps carry per-column measurements of this weight
  std::int64_t common = 0;     // columns that both have
  bool common_bitwise = false; // all of those
  Ranges differing;            // columns of the candidate whose digest is not the reference's, or that are new
  Ranges outside;              // of those, the ones whose own relative difference is above the tolerance
  ColumnsLook bad, good;       // candidate's: the columns in `outside` (all new ones count), and the bitwise ones
  bool trailing = false;       // `outside` is one range up to the last column, and all columns before it are bitwise
};

// `dtypes_equal`: digests are comparable. `rows`: elements per column.
ColumnsVerdict judge_columns(const std::vector<probes::ColumnMeasurement>& reference,
                             const std::vector<probes::ColumnMeasurement>& candidate, bool dtypes_equal,
                             std::int64_t rows, double allowed, double slack = cpu_slack);

} // namespace h3diff::goldens
