// Distances of two captured tensors, streamed: memory stays flat whatever their size. Sums are in float64, in an
// order fixed by the shape alone, so results do not depend on the number of threads or the instruction set.
#pragma once
#include "h3diff/goldens/compare.hpp"
#include "h3diff/probes/dump.hpp"
#include <optional>

namespace h3diff::goldens {

// Two tensors read in step: the rows that both hold. Sampled rows pair with the same rows of a full tensor.
class TensorPair {
public:
  // nullopt: they cannot be read in step (other shapes, other samples, or rows too long for a buffer).
  static std::optional<TensorPair> match(const probes::StoredTensor& reference, const probes::StoredTensor& candidate);

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return reference_.cols; }
  std::int64_t segment_rows() const { return segment_rows_; }
  bool sampled() const { return rows_ != segment_rows_; }
  std::int64_t row_of_segment(std::int64_t row) const; // where in the segment row `row` of the pair stands
  probes::DType reference_dtype() const { return reference_.dtype; }
  probes::DType candidate_dtype() const { return candidate_.dtype; }
  Result<void> read(std::int64_t begin, std::int64_t count, void* reference, void* candidate) const;

private:
  Result<void> read_one(const probes::StoredTensor&, std::int64_t begin, std::int64_t count, void* out) const;
  probes::StoredTensor reference_, candidate_;
  std::int64_t rows_ = 0, segment_rows_ = 0;
};

struct TensorSums {
  std::int64_t pairs = 0;            // elements finite on both sides; the sums are over these
  std::int64_t lost = 0, gained = 0; // finite only in the reference / only in the candidate
  bool identical = true;             // same dtype, same bytes
  double difference = 0;             // sums of squares
  double reference = 0, candidate = 0;
  double reference_sum = 0, candidate_sum = 0;

  double rel_l2() const; // NaN: no pairs; infinite: the reference is zero and the candidate is not
  double std_ratio() const;
  double cosine() const;
  void add(const TensorSums&);
};

Result<TensorSums> tensor_sums(const TensorPair&, int threads);

struct TensorDetail {
  std::vector<std::array<std::int64_t, 2>> bad_rows, bad_columns; // empty: all of them, or none
  std::vector<WorstElement> worst;                                // by |a - b|, non-finite first
};

// Rows and columns whose own relative L2 is above `allowed`, and the `count` worst elements.
Result<TensorDetail> tensor_detail(const TensorPair&, double allowed, std::int64_t count);

// Are the leading `columns` of two full tensors of equal dtype and row count bitwise equal?
Result<bool> equal_leading_columns(const probes::StoredTensor& a, const probes::StoredTensor& b, std::int64_t columns);

} // namespace h3diff::goldens
