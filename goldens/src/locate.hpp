// Which rows and columns of a probe are off: exactly from tensors, about from the 16 row bands and column groups.
#pragma once
#include "h3diff/probes/measure.hpp"
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace h3diff::goldens {

using Ranges = std::vector<std::array<std::int64_t, 2>>; // inclusive

// "8-15", "3", "0-1, 4 and 6-7"
std::string in_words(const Ranges&);

// Squared norms of a difference and of the reference per row (or column), in at most `most` groups of neighbours.
class GroupNorms {
public:
  GroupNorms(std::int64_t count, std::int64_t most);
  void add(std::int64_t at, double difference, double reference) {
    const std::size_t group = static_cast<std::size_t>(at / width_);
    difference_[group] += difference;
    reference_[group] += reference;
  }
  // Ranges whose relative L2 is above `allowed`; empty if that is all of them.
  Ranges outside(double allowed) const;

private:
  std::int64_t count_, width_;
  std::vector<double> difference_, reference_;
};

// From the band norms of two tensors of one shape: the ranges of rows (columns) whose norm is off by more than
// `allowed`. A change that keeps the norm is not seen. Empty if that is all of them.
Ranges bands_outside(const std::array<float, 16>& reference, const std::array<float, 16>& candidate, std::int64_t count,
                     double allowed);

} // namespace h3diff::goldens
