#include "judge.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <limits>

namespace h3diff::goldens {

using probes::IndexRow;
using probes::Level;

namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

bool has_statistics(const IndexRow& row) { return row.level >= Level::stats; }

// One distance, by the best evidence that both dumps hold.
struct Distance {
  Evidence evidence = Evidence::none;
  double rel_l2 = unknown, error = unknown, std_ratio = unknown, cosine = unknown;
  double at_least = 0;               // certain, where rel_l2 is an estimate
  double slack = 0;                  // of what rel_l2 was computed from
  std::int64_t lost = 0, gained = 0; // non-finite values on one side only, where tensors show it
  std::string note;
};

double ratio(double part, double whole) { return part == 0 ? 0 : part / whole; }

void from_sums(const TensorSums& sums, Distance& out) {
  out.evidence = Evidence::tensors;
  out.rel_l2 = sums.rel_l2();
  out.error = 0;
  if (std::isnan(out.std_ratio))
    out.std_ratio = sums.std_ratio();
  out.cosine = sums.cosine();
  out.at_least = out.rel_l2;
  out.slack = 0;
  out.lost = sums.lost;
  out.gained = sums.gained;
}

void from_sketches(const std::vector<float>& a, const std::vector<float>& b, const IndexRow& reference,
                   const IndexRow& candidate, Distance& out) {
  const auto distance = probes::sketch_distance(a, b);
  const double l2 = reference.statistics.l2, other = candidate.statistics.l2;
  const double estimate = std::sqrt(distance.squared);
  const double upper = std::sqrt(distance.squared + distance.error);
  const double lower = std::sqrt(std::max(0.0, distance.squared - distance.error));
  out.evidence = Evidence::sketch;
  out.rel_l2 = ratio(estimate, l2);
  out.error = ratio(std::max(upper - estimate, estimate - lower), l2);
  // No bucket holds more than this many elements, so by Cauchy and Schwarz the distance is at least:
  const double crowd = static_cast<double>(reference.rows) * std::ceil(static_cast<double>(reference.cols) / 256) *
                       (256.0 / static_cast<double>(std::min(a.size(), b.size())));
  out.at_least = std::max(ratio(lower, l2), ratio(estimate / std::sqrt(std::max(1.0, crowd)), l2));
  out.cosine = (l2 * l2 + other * other - distance.squared) / (2 * l2 * other);
}

// What statistics can refute: a lower bound of the relative L2.
double statistics_bound(const IndexRow& reference, const IndexRow& candidate, double slack) {
  const auto& a = reference.statistics;
  const auto& b = candidate.statistics;
  const double n = static_cast<double>(std::min(a.count - a.nan - a.inf, b.count - b.nan - b.inf));
  double bound = statistics_distance(n, a.l2, a.mean, a.std, a.absmax, b.l2, b.mean, b.std, b.absmax, slack);
  for (const auto& [left, right] : {std::pair{&a.row_bands, &b.row_bands}, std::pair{&a.col_groups, &b.col_groups}}) {
    double squares = 0;
    for (std::size_t i = 0; i < left->size(); ++i) {
      const double before = (*left)[i], after = (*right)[i];
      const double rounding = (0x1p-23 + slack) * (std::fabs(before) + std::fabs(after));
      const double change = std::max(0.0, std::fabs(after - before) - rounding);
      if (std::isfinite(change))
        squares += change * change;
    }
    bound = std::max(bound, std::sqrt(squares));
  }
  return ratio(bound, a.l2);
}

Result<Distance> measure_distance(const JudgeContext& context, const IndexRow& reference, const IndexRow& candidate) {
  Distance out;
  auto tensors = tensors_of(context, reference, candidate);
  if (!tensors)
    return tensors.error();
  const bool statistics = has_statistics(reference) && has_statistics(candidate);
  if (statistics) {
    const auto& a = reference.statistics;
    const auto& b = candidate.statistics;
    out.std_ratio = b.std / a.std;
    out.slack = context.slack;
  }
  std::optional<TensorSums> sample;
  if (*tensors) {
    auto sums = tensor_sums(**tensors, context.threads);
    if (!sums)
      return sums.error();
    if (!(*tensors)->sampled()) {
      from_sums(*sums, out);
      return out;
    }
    sample = *sums;
  }
  if (statistics && reference.sketch_k > 0 && candidate.sketch_k > 0) {
    auto a = context.reference.sketch(reference);
    if (!a)
      return a.error();
    auto b = context.candidate.sketch(candidate);
    if (!b)
      return b.error();
    if (!a->empty() && !b->empty())
      from_sketches(*a, *b, reference, candidate, out);
  }
  if (sample) {
    // Sampled rows alone are a lower bound of the whole distance.
    const double bound =
        ratio(std::sqrt(sample->difference), statistics ? reference.statistics.l2 : std::sqrt(sample->reference));
    if (out.evidence == Evidence::none) {
      from_sums(*sample, out);
      out.error = unknown;
      out.note = fmt::format("by {} sampled rows of {}", (*tensors)->rows(), (*tensors)->segment_rows());
    } else {
      out.lost = sample->lost;
      out.gained = sample->gained;
      if (bound > out.rel_l2 + out.error) {
        out.rel_l2 = bound;
        out.error = unknown;
        out.at_least = bound;
        out.evidence = Evidence::tensors;
        out.note = fmt::format("by {} sampled rows of {}, which alone differ by more than the sketch says",
                               (*tensors)->rows(), (*tensors)->segment_rows());
      }
    }
  }
  if (!statistics)
    return out;
  const double bound = statistics_bound(reference, candidate, context.slack);
  if (out.evidence == Evidence::none) {
    out.evidence = Evidence::statistics;
    out.rel_l2 = bound;
    out.note = "by statistics only, which can refute but not confirm";
  } else if (out.evidence == Evidence::sketch) {
    out.at_least = std::max(out.at_least, bound);
    out.rel_l2 = std::max(out.rel_l2, bound);
  }
  return out;
}

std::string shape_reason(const JudgeContext& context, const IndexRow& a, const IndexRow& b, Ranges& bad_columns,
                         bool& failed, Error& error) {
  const std::string shapes = fmt::format("[{}, {}] where the reference has [{}, {}]", b.rows, b.cols, a.rows, a.cols);
  if (a.rows != b.rows || a.cols == b.cols)
    return shapes;
  const std::int64_t common = std::min(a.cols, b.cols);
  bool equal = false;
  const auto left = context.reference.columns(a.probe), right = context.candidate.columns(b.probe);
  const auto enough = static_cast<std::size_t>(common);
  if (a.dtype == b.dtype && left.size() >= enough && right.size() >= enough) {
    equal = std::equal(left.begin(), left.begin() + common, right.begin(),
                       [](const auto& x, const auto& y) { return x.digest == y.digest; });
  } else if (a.level == Level::full && b.level == Level::full) {
    auto ta = context.reference.tensor(a);
    auto tb = context.candidate.tensor(b);
    Result<bool> leading = false;
    if (ta && tb && *ta && *tb)
      leading = equal_leading_columns(**ta, **tb, common);
    if (!ta || !tb || !leading) {
      failed = true;
      error = !ta ? ta.error() : !tb ? tb.error() : leading.error();
      return shapes;
    }
    equal = *leading;
  }
  if (b.cols > a.cols)
    bad_columns = {{a.cols, b.cols - 1}};
  if (!equal)
    return shapes;
  const std::string prefix = common == 1 ? "column 0 is" : fmt::format("columns 0-{} are", common - 1);
  if (b.cols > a.cols)
    return fmt::format("wider: {} bitwise the reference's, {} {} new", prefix, in_words(bad_columns),
                       b.cols - a.cols == 1 ? "is" : "are");
  return fmt::format("narrower: {} bitwise the reference's, {} {} lacking", prefix, in_words({{b.cols, a.cols - 1}}),
                     a.cols - b.cols == 1 ? "is" : "are");
}

std::string nonfinite_reason(const IndexRow& a, const IndexRow& b, const Distance& distance) {
  if (b.statistics.nan > a.statistics.nan || b.statistics.inf > a.statistics.inf) {
    const double share = 100.0 * static_cast<double>(b.statistics.nan + b.statistics.inf) /
                         static_cast<double>(std::max<std::int64_t>(1, b.statistics.count));
    const std::string here = fmt::format("{} NaN and {} Inf ({:.3g} %)", b.statistics.nan, b.statistics.inf, share);
    if (a.statistics.nan + a.statistics.inf == 0)
      return here + ", the reference has none";
    return fmt::format("{}, the reference has {} NaN and {} Inf", here, a.statistics.nan, a.statistics.inf);
  }
  return fmt::format("{} values are not finite where the reference's are", distance.lost);
}

// By how much the std ratio may leave 1. Where the mean dwarfs the spread, rounding the mean alone moves the spread;
// a constant has none to compare.
double std_allowed(const IndexRow& reference, double allowed, double slack) {
  const auto& s = reference.statistics;
  const double rms = std::hypot(s.mean, s.std);
  if (!(s.std > 1e-9 * rms))
    return std::numeric_limits<double>::infinity();
  return (allowed + slack) * rms / s.std;
}

void append(std::string& reason, const std::string& more) {
  if (more.empty())
    return;
  if (!reason.empty())
    reason += "; ";
  reason += more;
}

void locate_by_bands(const IndexRow& a, const IndexRow& b, ProbeResult& result) {
  if (!has_statistics(a) || !has_statistics(b))
    return;
  const double allowed = std::max(result.tolerance.allowed, 1e-6);
  if (result.bad_rows.empty() && a.rows > 1) {
    result.bad_rows = bands_outside(a.statistics.row_bands, b.statistics.row_bands, a.rows, allowed);
    if (!result.bad_rows.empty())
      append(result.reason, "about rows " + in_words(result.bad_rows));
  }
  if (result.bad_columns.empty() && a.cols > 1) {
    result.bad_columns = bands_outside(a.statistics.col_groups, b.statistics.col_groups, a.cols, allowed);
    if (!result.bad_columns.empty())
      append(result.reason, "about columns " + in_words(result.bad_columns));
  }
}

// The verdict by numbers: `within` or `diverged`, with the reason.
void judge_distance(const IndexRow& a, const Distance& distance, ProbeResult& result) {
  if (a.rows == 0 || a.cols == 0) {
    result.outcome = Outcome::within;
    result.rel_l2 = result.rel_l2_error = 0;
    return;
  }
  const double allowed = result.tolerance.allowed;
  const bool far = !(distance.rel_l2 <= allowed + distance.slack); // not a number counts as far
  const double spread = std_allowed(a, allowed, distance.slack);
  const bool other_spread = std::isfinite(distance.std_ratio) && std::fabs(distance.std_ratio - 1) > spread;
  result.outcome = far || other_spread ? Outcome::diverged : Outcome::within;
  if (distance.gained > 0) {
    result.outcome = Outcome::diverged;
    append(result.reason, fmt::format("{} values are finite where the reference's are not", distance.gained));
  }
  if (far) {
    const bool bound_only = distance.evidence == Evidence::statistics;
    append(result.reason, fmt::format("relative L2 {}{:.3g}, allowed {:.3g}", bound_only ? "at least " : "",
                                      distance.rel_l2, allowed));
  } else if (other_spread) {
    append(result.reason, fmt::format("std ratio {:.4g}, allowed 1 +- {:.3g}", distance.std_ratio, spread));
  }
  if (distance.evidence == Evidence::sketch && std::isfinite(distance.error) && distance.rel_l2 != 0) {
    const double high = distance.rel_l2 + distance.error;
    if (distance.at_least <= allowed && allowed < high)
      append(result.reason, fmt::format("the sketch's error bound ({:.2g} to {:.2g}) straddles the limit {:.3g}: "
                                        "--capture full settles it",
                                        distance.at_least, high, allowed));
  }
  append(result.reason, distance.note);
}

void judge_columns_into(const JudgeContext& context, const ProbePair& pair, const IndexRow& a, const IndexRow& b,
                        ProbeResult& result) {
  const auto columns = columns_of(context, pair, a, b, result.tolerance.allowed);
  if (!columns.known)
    return;
  if (!columns.outside.empty()) {
    result.outcome = Outcome::diverged;
    Ranges good;
    std::int64_t next = 0;
    for (const auto& range : columns.differing) {
      if (range[0] > next)
        good.push_back({next, range[0] - 1});
      next = range[1] + 1;
    }
    if (next < b.cols)
      good.push_back({next, b.cols - 1});
    if (static_cast<std::int64_t>(columns.outside[0][1] - columns.outside[0][0] + 1) < b.cols)
      result.bad_columns = columns.outside;
    if (columns.good.columns > 0)
      result.reason = fmt::format("absmax {:.4g} there, {:.4g} in columns {}, which are bitwise the reference's",
                                  columns.bad.absmax, columns.good.absmax, in_words(good));
    else
      append(result.reason, fmt::format("absmax {:.4g} in columns {}", columns.bad.absmax, in_words(columns.outside)));
  } else if (result.outcome == Outcome::diverged && !columns.differing.empty() && columns.good.columns > 0) {
    result.bad_columns = columns.differing;
  }
}

// Nothing but digests on at least one side, and they differ.
void judge_digests(const JudgeContext& context, const IndexRow& a, const IndexRow& b, ProbeResult& result) {
  if (a.dtype != b.dtype) {
    result.outcome = Outcome::stale;
    result.reason = fmt::format("only digests, of {} and {}, which cannot be compared; capture statistics",
                                probes::name(a.dtype), probes::name(b.dtype));
  } else if (!context.version_differs.empty()) {
    result.outcome = Outcome::stale;
    result.reason =
        fmt::format("only digests, and they are bound to versions that differ: {}", context.version_differs);
  } else {
    result.outcome = Outcome::diverged;
    result.reason = "the digests differ, and there are no statistics to say by how much";
  }
}

bool may_be_mistrusted(const ProbePair& pair, const IndexRow& a, const IndexRow& b) {
  if (!pair.info || pair.info->weight || pair.info->op == "input")
    return false;
  if (pair.info->name.starts_with("rope."))
    return false; // row 0 has angle 0 everywhere
  if (pair.info->space == probes::RowSpace::timesteps && a.rows == 1)
    return false;
  return is_constant(a) && is_constant(b);
}

} // namespace

bool is_constant(const IndexRow& row) {
  const auto& s = row.statistics;
  return has_statistics(row) && s.count > 1 && s.nan == 0 && s.inf == 0 && s.min == s.max;
}

ColumnsVerdict columns_of(const JudgeContext& context, const ProbePair& pair, const IndexRow& reference,
                          const IndexRow& candidate, double allowed) {
  if (!pair.info || !pair.info->per_column)
    return {};
  return judge_columns(context.reference.columns(reference.probe), context.candidate.columns(candidate.probe),
                       reference.dtype == candidate.dtype, reference.rows, allowed, context.slack);
}

Result<std::optional<TensorPair>> tensors_of(const JudgeContext& context, const IndexRow& reference,
                                             const IndexRow& candidate) {
  if (reference.level < Level::rows || candidate.level < Level::rows)
    return std::optional<TensorPair>{};
  auto a = context.reference.tensor(reference);
  if (!a)
    return a.error();
  auto b = context.candidate.tensor(candidate);
  if (!b)
    return b.error();
  if (!*a || !*b)
    return std::optional<TensorPair>{};
  return TensorPair::match(**a, **b);
}

Result<ProbeResult> judge(const JudgeContext& context, const ProbePair& pair, const SegmentPair& segment) {
  ProbeResult result;
  result.step = pair.step;
  result.probe = pair.probe;
  result.op = pair.info ? pair.info->op : "";
  result.segment = segment.segment;
  result.rel_l2 = result.rel_l2_error = result.std_ratio = result.cosine = unknown;

  if (!segment.candidate) {
    result.outcome = pair.declared_unobserved ? Outcome::skipped : Outcome::missing;
    result.reason = pair.declared_unobserved ? probes::printable(pair.unobserved) : "the candidate has no such row";
    return result;
  }
  if (!segment.reference) {
    result.outcome = Outcome::extra;
    result.reason = "the reference has no such row";
    return result;
  }
  const IndexRow& a = *segment.reference;
  const IndexRow& b = *segment.candidate;
  result.tolerance = tolerance(context.tolerance, pair.info, pair.step, a, b);
  result.identical = a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype && a.digest == b.digest;

  if (a.rows != b.rows || a.cols != b.cols) {
    result.outcome = Outcome::shape;
    bool failed = false;
    Error error;
    result.reason = shape_reason(context, a, b, result.bad_columns, failed, error);
    if (failed)
      return error;
    return result;
  }

  if (result.identical) {
    result.outcome = Outcome::bitwise;
    result.evidence = Evidence::digest;
    result.rel_l2 = result.rel_l2_error = 0;
    result.std_ratio = result.cosine = 1;
  } else {
    auto distance = measure_distance(context, a, b);
    if (!distance)
      return distance.error();
    result.evidence = distance->evidence;
    result.rel_l2 = distance->rel_l2;
    result.rel_l2_error = distance->error;
    result.std_ratio = distance->std_ratio;
    result.cosine = distance->cosine;
    const auto& claims = context.tolerance;
    const bool claims_equal = claims.reference_claim && claims.reference_claim == claims.candidate_claim;
    const bool weight = pair.info && pair.info->weight; // held in some dtype, computed in none: its values decide
    if (claims_equal && a.dtype != b.dtype && !weight) {
      result.outcome = Outcome::dtype;
      result.reason = fmt::format("{} where the reference has {}, though both runs claim {}", probes::name(b.dtype),
                                  probes::name(a.dtype), probes::name(*claims.reference_claim));
      if (std::isfinite(result.rel_l2) && distance->evidence != Evidence::statistics)
        append(result.reason, fmt::format("relative L2 {:.3g}", result.rel_l2));
    } else if (b.statistics.nan > a.statistics.nan || b.statistics.inf > a.statistics.inf || distance->lost > 0) {
      result.outcome = Outcome::nonfinite;
      result.reason = nonfinite_reason(a, b, *distance);
      locate_by_bands(a, b, result);
    } else if (distance->evidence == Evidence::none) {
      result.evidence = Evidence::digest;
      judge_digests(context, a, b, result);
    } else {
      if (weight && a.dtype != b.dtype)
        result.reason =
            fmt::format("held in {} where the reference holds {}", probes::name(b.dtype), probes::name(a.dtype));
      judge_distance(a, *distance, result);
      judge_columns_into(context, pair, a, b, result);
      if (result.outcome == Outcome::diverged && distance->evidence != Evidence::tensors)
        locate_by_bands(a, b, result);
    }
  }

  if (is_inside(result.outcome) && may_be_mistrusted(pair, a, b) && context.neighbours_alive(pair, segment.segment)) {
    result.outcome = Outcome::mistrusted;
    const bool zero = a.statistics.min == 0 && b.statistics.min == 0;
    result.reason =
        zero ? "all zero on both sides, its neighbours are not" : "constant on both sides, its neighbours are not";
  }
  if (!pair.reordered_before.empty()) {
    const std::string was =
        is_outside(result.outcome) ? fmt::format(" ({}: {})", name(result.outcome), result.reason) : "";
    result.outcome = Outcome::reordered;
    result.reason = fmt::format("runs before its input {}, after it in the reference{}", pair.reordered_before, was);
  }
  return result;
}

} // namespace h3diff::goldens
