// Compares two dumps and names the first op that diverges. Knows nothing of runners or terminals.
#pragma once
#include "h3diff/probes/dump.hpp"
#include "h3diff/probes/result.hpp"
#include <nlohmann/json_fwd.hpp>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace h3diff::goldens {

// The closed set of outcomes (docs/outcomes.md).
enum class Outcome {
  bitwise,
  within,
  diverged,
  nonfinite,
  shape,
  dtype,
  missing,
  extra,
  reordered,
  dispatch,
  input_drift,
  no_golden,
  stale,
  ungated,
  mistrusted,
  skipped,
  tool_error,
};
std::string_view name(Outcome);
bool is_outside(Outcome); // diverged, nonfinite, shape, dtype, reordered, dispatch, input_drift
bool is_inside(Outcome);  // bitwise, within

// How a probe was judged, best first.
enum class Evidence { digest, tensors, sketch, statistics, none };
std::string_view name(Evidence);

struct Tolerance {
  double allowed = 0;     // relative L2
  std::string arithmetic; // "8 x 2^-8 x sqrt(1 + 3)": how `allowed` came about
};

// One compared (step, probe, segment).
struct ProbeResult {
  std::int32_t step = 0;
  std::string probe, op;
  probes::Segment segment = probes::Segment::all;
  Outcome outcome = Outcome::bitwise;
  Evidence evidence = Evidence::none;
  std::string reason;
  double rel_l2 = 0, rel_l2_error = 0, std_ratio = 1, cosine = 1; // NaN where unknown
  Tolerance tolerance;
  std::vector<std::array<std::int64_t, 2>> bad_rows, bad_columns; // inclusive ranges, where known
  bool identical = false;                                         // same shape, dtype and digest, whatever the outcome
  bool spoiled = false; // outside, but so is one of its nearest observed inputs
};

struct WorstElement {
  std::int64_t row = 0, column = 0;
  double reference = 0, candidate = 0;
  std::string reference_hex, candidate_hex;
};

struct FirstDivergence {
  ProbeResult result;
  std::string last_good;                   // the nearest input that is inside
  std::vector<std::string> ops_between;    // graph probes between last_good and this one that nobody observed
  std::vector<std::string> probe_next;     // what to capture to narrow it down
  std::vector<WorstElement> worst;         // where full tensors exist
  std::optional<ProbeResult> spoils_first; // of a weight: the first activation it spoils
  std::string repro;                       // a command
};

struct Hypothesis {
  std::string kind, evidence, confirm;
};

struct CompareOptions {
  // Probes or globs that count as expected; empty: all of the reference. "!GLOB" takes probes out again. A plain name
  // is expected even if the reference lacks it; an entry that matches no probe is a usage error.
  std::vector<std::string> expect;
  double factor = 1.0; // scales every tolerance
  std::int64_t worst = 5;
  int threads = 2;
  bool verify = false; // recompute the digests of captured tensors first; a wrong one is bad input
};

struct CompareResult {
  std::string reference_path, candidate_path;
  Outcome verdict = Outcome::bitwise; // `within` or `bitwise` mean pass
  ExitCode exit_code = ExitCode::ok;
  std::int64_t compared = 0, expected = 0;     // (step, probe) pairs
  std::optional<ProbeResult> first_difference; // the earliest probe that is not bitwise
  std::optional<FirstDivergence> first_divergence;
  std::vector<ProbeResult> culprits;
  std::vector<Hypothesis> hypotheses;
  std::vector<ProbeResult> probes; // every one, in execution order
  std::vector<std::string> notes;  // differing facts, warnings
};

Result<CompareResult> compare(const std::string& reference, const std::string& candidate, const CompareOptions&);
Result<CompareResult> compare(const probes::DumpReader& reference, const probes::DumpReader& candidate,
                              const CompareOptions&);

// The record of docs/record.md. Non-finite figures are null.
nlohmann::json to_json(const CompareResult&);

} // namespace h3diff::goldens
