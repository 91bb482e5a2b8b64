#include "h3diff/goldens/compare.hpp"

namespace h3diff::goldens {

std::string_view name(Outcome outcome) {
  switch (outcome) {
  case Outcome::bitwise: return "bitwise";
  case Outcome::within: return "within";
  case Outcome::diverged: return "diverged";
  case Outcome::nonfinite: return "nonfinite";
  case Outcome::shape: return "shape";
  case Outcome::dtype: return "dtype";
  case Outcome::missing: return "missing";
  case Outcome::extra: return "extra";
  case Outcome::reordered: return "reordered";
  case Outcome::dispatch: return "dispatch";
  case Outcome::input_drift: return "input_drift";
  case Outcome::no_golden: return "no_golden";
  case Outcome::stale: return "stale";
  case Outcome::ungated: return "ungated";
  case Outcome::mistrusted: return "mistrusted";
  case Outcome::skipped: return "skipped";
  case Outcome::tool_error: return "tool_error";
  }
  return "tool_error";
}

bool is_outside(Outcome outcome) {
  switch (outcome) {
  case Outcome::diverged:
  case Outcome::nonfinite:
  case Outcome::shape:
  case Outcome::dtype:
  case Outcome::reordered:
  case Outcome::dispatch:
  case Outcome::input_drift: return true;
  default: return false;
  }
}

bool is_inside(Outcome outcome) { return outcome == Outcome::bitwise || outcome == Outcome::within; }

std::string_view name(Evidence evidence) {
  switch (evidence) {
  case Evidence::digest: return "digest";
  case Evidence::tensors: return "tensors";
  case Evidence::sketch: return "sketch";
  case Evidence::statistics: return "statistics";
  case Evidence::none: return "none";
  }
  return "none";
}

} // namespace h3diff::goldens
