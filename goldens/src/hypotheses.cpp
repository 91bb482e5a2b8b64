#include "hypotheses.hpp"
#include "facts.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <optional>

namespace h3diff::goldens {

namespace {

using Rule = std::optional<Hypothesis> (*)(const Findings&);

// Trailing columns of the AdaLN projections unlike the loaded ones before them.
std::optional<Hypothesis> adaln_padding(const Findings& findings) {
  std::string first;
  std::int64_t hits = 0, projections = 0, from = 0, to = 0;
  for (std::size_t i = 0; i < findings.results.size() && findings.results[i].step < 0; ++i) {
    const auto [pair, segment] = findings.source(i);
    const auto *a = segment->reference, *b = segment->candidate;
    if (!pair->info || !pair->info->per_column || !a || !b || !pair->probe.ends_with("adaln_proj"))
      continue;
    ++projections;
    if (!is_outside(findings.results[i].outcome) || a->rows != b->rows)
      continue;
    const auto columns = columns_of(findings.context, *pair, *a, *b, findings.results[i].tolerance.allowed);
    // Zero padding is harmless, whatever the reference holds there.
    if (!columns.known || !columns.trailing || columns.bad.absmax == 0)
      continue;
    if (++hits > 1)
      continue;
    from = columns.outside[0][0];
    to = columns.outside[0][1];
    const auto original = findings.context.reference.columns(a->probe);
    double before = 0;
    for (const auto& column : original)
      if (column.column >= from && std::isfinite(column.absmax))
        before = std::max(before, column.absmax);
    const std::string there = static_cast<std::int64_t>(original.size()) > from
                                  ? fmt::format("the reference has absmax {:.4g} there", before)
                                  : "the reference has no such columns";
    first = fmt::format("{}: absmax {:.4g} and std {:.3g} in columns {}, {:.4g} and {:.3g} in columns {}, which are "
                        "bitwise the reference's; {}",
                        pair->probe, columns.bad.absmax, columns.bad.std, in_words(columns.outside),
                        columns.good.absmax, columns.good.std, in_words({{0, from - 1}}), there);
  }
  if (hits == 0)
    return std::nullopt;
  const auto& candidate = findings.context.candidate;
  return Hypothesis{"adaln_padding",
                    fmt::format("trailing columns look never loaded: {}; {} of {} AdaLN projections are like this",
                                first, hits, projections),
                    rerun_command(candidate, fmt::format("--zero-columns adaln_proj:{}-{}", from, to + 1), "fixed.h5")};
}

// The shift s of sigma = s u / (1 + (s - 1) u) at u = 1 - step / steps.
std::optional<double> shift_of(double sigma, std::int32_t step, std::size_t steps) {
  if (step <= 0 || static_cast<std::size_t>(step) >= steps || !(sigma > 0 && sigma < 1))
    return std::nullopt;
  const double u = 1 - static_cast<double>(step) / static_cast<double>(steps);
  return sigma * (1 - u) / (u * (1 - sigma));
}

std::optional<Hypothesis> schedule(const Findings& findings) {
  const auto& left = findings.context.reference.steps();
  const auto& right = findings.context.candidate.steps();
  const auto evaluations = [](const auto& steps) {
    return static_cast<std::size_t>(
        std::count_if(steps.begin(), steps.end(), [](const auto& s) { return s.step >= 0; }));
  };
  for (const auto& a : left) {
    if (a.step < 0)
      continue;
    const auto b = std::find_if(right.begin(), right.end(), [&](const auto& s) { return s.step == a.step; });
    if (b == right.end())
      continue;
    const std::tuple<const char*, double, double, std::int32_t> sigmas[] = {
        {"sigma_video", a.sigma_video, b->sigma_video, a.step},
        {"sigma_audio", a.sigma_audio, b->sigma_audio, a.step},
        {"sigma_video_next", a.sigma_video_next, b->sigma_video_next, a.step + 1},
        {"sigma_audio_next", a.sigma_audio_next, b->sigma_audio_next, a.step + 1}};
    for (const auto& [which, before, after, at] : sigmas) {
      const bool both = std::isfinite(before) && std::isfinite(after);
      if (!both || std::fabs(after - before) <= 1e-6 * std::max(std::fabs(before), std::fabs(after)))
        continue;
      std::string evidence =
          fmt::format("{} of step {} is {:.6g}, {:.6g} in the reference", which, a.step, after, before);
      if (evaluations(left) != evaluations(right)) {
        evidence += fmt::format("; {} steps against {}", evaluations(right), evaluations(left));
      } else {
        const auto s = shift_of(after, at, evaluations(right)), t = shift_of(before, at, evaluations(left));
        if (s && t)
          evidence += fmt::format("; as a shift that is {:.4g} against {:.4g}", *s, *t);
      }
      return Hypothesis{"schedule", std::move(evidence), "h3diff inspect CANDIDATE"};
    }
  }
  return std::nullopt;
}

// Gate and value exchanged: the sixteen group norms of fc1 (or of its weight's rows) fit when the halves trade places.
std::optional<Hypothesis> swiglu_swap(const Findings& findings) {
  for (const std::size_t culprit : findings.culprits) {
    const auto [pair, segment] = findings.source(culprit);
    if (!pair->probe.ends_with(".mlp.fc1") || !segment->reference || !segment->candidate)
      continue;
    const auto &a = *segment->reference, &b = *segment->candidate;
    if (a.level < probes::Level::stats || b.level < probes::Level::stats || a.rows != b.rows || a.cols != b.cols)
      continue;
    const bool weight = pair->info && pair->info->weight;
    if ((weight ? a.rows : a.cols) % 2 != 0)
      continue;
    const auto& before = weight ? a.statistics.row_bands : a.statistics.col_groups;
    const auto& after = weight ? b.statistics.row_bands : b.statistics.col_groups;
    const double allowed = std::max(findings.results[culprit].tolerance.allowed, 1e-6);
    double straight = 0, swapped = 0;
    bool usable = true;
    for (std::size_t g = 0; g < 16; ++g) {
      usable = usable && before[g] > 0 && std::isfinite(before[g]) && std::isfinite(after[g]);
      straight = std::max(straight, std::fabs(after[g] / static_cast<double>(before[g]) - 1));
      swapped = std::max(swapped, std::fabs(after[g] / static_cast<double>(before[(g + 8) % 16]) - 1));
    }
    if (!usable || swapped > allowed || straight < 10 * swapped || straight < 1e-5)
      continue;
    return Hypothesis{
        "swiglu_swap",
        fmt::format(
            "{}: with its halves exchanged all 16 group norms fit the reference's to {:.2g}, as they are only to "
            "{:.2g}: [value; gate] where [gate; value] is meant",
            pair->probe, swapped, straight),
        capture_command(findings.context.candidate, fmt::format("stats,{}=full", pair->probe), 1, "swap.h5")};
  }
  return std::nullopt;
}

std::optional<Hypothesis> backend_fallback(const Findings& findings) {
  std::string evidence;
  for (const auto& row : findings.context.candidate.dispatch()) {
    if (row.fallbacks <= 0)
      continue;
    if (!evidence.empty())
      evidence += "; ";
    evidence += fmt::format("{}: {} of {} calls fell back to {}", probes::printable(row.op), row.fallbacks, row.calls,
                            probes::printable(row.implementation));
    if (!row.declared.empty())
      evidence += fmt::format(", declared is {}", probes::printable(row.declared));
  }
  if (evidence.empty())
    return std::nullopt;
  return Hypothesis{"backend_fallback", evidence, "h3diff doctor"};
}

constexpr Rule rules[] = {backend_fallback, schedule, adaln_padding, swiglu_swap};

} // namespace

std::vector<Hypothesis> hypotheses(const Findings& findings) {
  std::vector<Hypothesis> out;
  for (const Rule rule : rules)
    if (auto found = rule(findings))
      out.push_back(std::move(*found));
  return out;
}

} // namespace h3diff::goldens
