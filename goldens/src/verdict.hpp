// Coverage, verdict and exit code.
#pragma once
#include "align.hpp"
#include "h3diff/goldens/compare.hpp"

namespace h3diff::goldens {

// Which (step, probe) pairs the caller counts on.
class Expectation {
public:
  // usage error for an entry that matches no probe of the reference or of the graph
  static Result<Expectation> make(const std::vector<std::string>& patterns, const Alignment&, const probes::Graph&);
  bool expects(const std::string& probe) const;
  const std::vector<std::pair<std::int32_t, std::string>>& absent() const { return absent_; } // not in the reference

private:
  bool everything_ = true; // unless a pattern says otherwise
  std::vector<std::string> wanted_, unwanted_;
  std::vector<std::pair<std::int32_t, std::string>> absent_;
};

// Fills compared, expected, verdict and exit_code from the results and the first divergence.
void conclude(CompareResult&, const Alignment&, const Expectation&);

} // namespace h3diff::goldens
