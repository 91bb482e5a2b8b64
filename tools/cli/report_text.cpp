#include "h3diff/probes/dump.hpp"
#include "report.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <map>

namespace h3diff::cli {
namespace {

using goldens::CompareResult;
using goldens::FirstDivergence;
using goldens::Outcome;
using goldens::ProbeResult;
using probes::printable;

constexpr std::size_t before_it = 3, after_it = 4, spoilt_rows = 4, listed_culprits = 8;

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c == '_' ? ' ' : c;
  });
  return out;
}

std::string step_text(std::int32_t step) { return step < 0 ? "load" : fmt::format("{}", step); }

// "step 0, video"; "weights" for step -1 and nothing for the segment `all`.
std::string where(const ProbeResult& result) {
  std::string text = result.step < 0 ? "at load" : fmt::format("step {}", result.step);
  if (result.segment != probes::Segment::all)
    text += fmt::format(", {}", probes::name(result.segment));
  return text;
}

std::string range_text(const char* one, const char* many, const std::vector<std::array<std::int64_t, 2>>& ranges) {
  if (ranges.empty())
    return {};
  const bool single = ranges.size() == 1 && ranges[0][0] == ranges[0][1];
  std::string text = single ? one : many;
  constexpr std::size_t shown = 4;
  for (std::size_t i = 0; i < std::min(ranges.size(), shown); ++i) {
    const auto& [first, last] = ranges[i];
    text += i == 0 ? " " : ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  if (ranges.size() > shown)
    text += fmt::format(" and {} more ranges", ranges.size() - shown);
  return text;
}

std::string place(const ProbeResult& result) {
  std::string text = range_text("row", "rows", result.bad_rows);
  const std::string columns = range_text("column", "columns", result.bad_columns);
  if (!text.empty() && !columns.empty())
    text += ", ";
  return text + columns;
}

std::string arithmetic(const ProbeResult& result) {
  if (result.tolerance.arithmetic.empty())
    return number(result.tolerance.allowed);
  // "8 x 2^-8 x sqrt(1 + 3) = 0.0625 (...)" already ends in the number.
  const std::string steps = printable(result.tolerance.arithmetic, 400);
  return steps.find(" = ") != std::string::npos ? steps
                                                : fmt::format("{} = {}", number(result.tolerance.allowed), steps);
}

// "relative L2 0.83, allowed 0.0061 = ..." with what else is known.
std::string figures(const ProbeResult& result) {
  std::string text;
  if (!std::isnan(result.rel_l2)) {
    text = fmt::format("relative L2 {}", number(result.rel_l2));
    if (result.rel_l2_error > 0 && !std::isnan(result.rel_l2_error))
      text += fmt::format(" +- {}", number(result.rel_l2_error));
    if (result.tolerance.allowed > 0 || !result.tolerance.arithmetic.empty())
      text += fmt::format(", allowed {}", arithmetic(result));
  }
  if (!std::isnan(result.std_ratio) && !std::isnan(result.cosine) && !text.empty())
    text += fmt::format("; std ratio {}, cosine {}", number(result.std_ratio), fmt::format("{:.6f}", result.cosine));
  if (!text.empty() && result.evidence != goldens::Evidence::none)
    text += fmt::format(" (from {})", goldens::name(result.evidence));
  return text;
}

// The figures, or, where a shape or dtype leaves none, what was found.
std::string finding(const ProbeResult& result) {
  const std::string text = figures(result);
  if (!text.empty())
    return text;
  return fmt::format("{}: {}", goldens::name(result.outcome), printable(result.reason, 200));
}

bool same_probe(const ProbeResult& a, const ProbeResult& b) { return a.step == b.step && a.probe == b.probe; }

int severity(const ProbeResult& result) {
  if (goldens::is_outside(result.outcome))
    return result.spoiled ? 3 : 4;
  if (!goldens::is_inside(result.outcome))
    return result.outcome == Outcome::extra ? 0 : 2;
  return result.outcome == Outcome::within ? 1 : 0;
}

// One row for each (step, probe), its worst segment, in execution order.
std::vector<const ProbeResult*> by_probe(const CompareResult& result) {
  std::vector<const ProbeResult*> rows;
  std::map<std::pair<std::int32_t, std::string_view>, std::size_t> at;
  for (const ProbeResult& probe : result.probes) {
    const auto [found, is_new] = at.try_emplace({probe.step, probe.probe}, rows.size());
    if (is_new) {
      rows.push_back(&probe);
      continue;
    }
    const ProbeResult*& kept = rows[found->second];
    const int now = severity(probe), then = severity(*kept);
    if (now > then || (now == then && probe.rel_l2 > kept->rel_l2))
      kept = &probe;
  }
  return rows;
}

Table::Tone tone(const ProbeResult& result) {
  switch (severity(result)) {
  case 4: return Table::Tone::bad;
  case 3: return Table::Tone::faint;
  case 2: return Table::Tone::doubtful;
  default: return Table::Tone::plain;
  }
}

std::string outcome_text(const ProbeResult& result) {
  std::string text(goldens::name(result.outcome));
  return result.spoiled ? text + ", spoiled" : text;
}

// place() for a table: nothing where it is too long for one.
std::string place_in_table(const ProbeResult& result) {
  const std::string text = place(result);
  return text.size() <= 24 ? text : "";
}

class ProbeTable {
public:
  ProbeTable()
      : table_({{"", false, false},
                {"step", true, false},
                {"probe", false, false},
                {"segment", false, true},
                {"outcome", false, false},
                {"rel. L2", true, false},
                {"allowed", true, false},
                {"where", false, true},
                {"std ratio", true, true},
                {"from", false, true}}) {}
  void add(const ProbeResult& result, bool marked) {
    const bool judged = result.outcome != Outcome::bitwise;
    table_.add({marked ? ">" : "", step_text(result.step), printable(result.probe),
                result.segment == probes::Segment::all ? "" : std::string(probes::name(result.segment)),
                outcome_text(result), judged ? number(result.rel_l2) : "0",
                judged && result.tolerance.allowed > 0 ? number(result.tolerance.allowed) : "", place_in_table(result),
                judged ? number(result.std_ratio) : "1", std::string(goldens::name(result.evidence))},
               marked ? Table::Tone::bad : tone(result));
  }
  void gap() { table_.add({"", "", "..."}, Table::Tone::faint); }
  std::string text(const Ink& ink) const { return table_.text(ink); }

private:
  Table table_;
};

std::string worst_text(const FirstDivergence& first, const Ink& ink) {
  Table table({{"row", true},
               {"column", true},
               {"reference", true},
               {"candidate", true},
               {"reference bits", false, true},
               {"candidate bits", false, true}});
  for (const goldens::WorstElement& element : first.worst)
    table.add({count(element.row), count(element.column), fmt::format("{:.9g}", element.reference),
               fmt::format("{:.9g}", element.candidate), element.reference_hex, element.candidate_hex});
  return heading(ink, "largest differences") + table.text(ink);
}

std::string labelled(std::string_view label, std::string_view text) {
  return paragraph(text, fmt::format("  {:<9}", label), std::string(11, ' '));
}

// A command, broken so that it can still be pasted.
std::string command(std::string_view label, std::string_view text) {
  std::string broken = paragraph(text, fmt::format("  {:<9}", label), std::string(11, ' '), 0, line_width - 2);
  for (std::size_t at = broken.find('\n'); at + 1 < broken.size(); at = broken.find('\n', at + 3))
    broken.insert(at, " \\");
  return broken;
}

// The headline: "DIVERGED  probe   place                      exit 1".
std::string headline(std::string_view word, const std::string& subject, int code, const Ink& ink, bool good) {
  const std::string exit = fmt::format("exit {}", code);
  const std::size_t used = word.size() + 2 + subject.size();
  const std::string gap =
      used + 2 + exit.size() <= line_width ? std::string(line_width - used - exit.size(), ' ') : "  ";
  return (good ? ink.green(word) : ink.red(word)) + "  " + ink.bold(subject) + gap + exit + "\n";
}

struct Tally {
  std::int64_t inside = 0, within = 0, bitwise = 0, spoiled = 0, undecided = 0, extra = 0;
};

Tally tally(const std::vector<const ProbeResult*>& rows) {
  Tally t;
  for (const ProbeResult* row : rows) {
    t.bitwise += row->outcome == Outcome::bitwise;
    t.within += row->outcome == Outcome::within;
    t.extra += row->outcome == Outcome::extra;
    const bool outside = goldens::is_outside(row->outcome);
    t.spoiled += outside && row->spoiled;
    t.undecided += !outside && !goldens::is_inside(row->outcome) && row->outcome != Outcome::extra;
  }
  t.inside = t.bitwise + t.within;
  return t;
}

std::string diverged_text(const CompareResult& result, const std::vector<const ProbeResult*>& rows, const Ink& ink) {
  const FirstDivergence& first = *result.first_divergence;
  const ProbeResult& it = first.result;
  const std::string at = place(it);
  std::string subject = printable(it.probe);
  subject += it.step < 0 ? "" : fmt::format("  {}", where(it));
  if (!at.empty())
    subject += "  " + at;
  if (subject.size() > 75)
    subject = subject.substr(0, 72) + "...";
  std::string out = headline(upper(goldens::name(it.outcome)), subject, static_cast<int>(result.exit_code), ink, false);
  if (!it.reason.empty())
    out += paragraph(printable(it.reason, 600));
  if (const std::string text = figures(it); !text.empty())
    out += paragraph(text);
  if (!first.last_good.empty())
    out += labelled("op", fmt::format("{}; its nearest input {} is inside", it.op, printable(first.last_good)));
  if (!first.ops_between.empty()) {
    std::string names;
    for (const std::string& name : first.ops_between)
      names += (names.empty() ? "" : ", ") + printable(name);
    out += labelled("between", "nobody observed " + names);
  }
  if (first.spoils_first) {
    const ProbeResult& spoilt = *first.spoils_first;
    out += labelled("spoils", fmt::format("{} first, {}: {}", printable(spoilt.probe), where(spoilt), finding(spoilt)));
  }
  for (const goldens::Hypothesis& hypothesis : result.hypotheses) {
    out += labelled("cause", ink.bold(printable(hypothesis.kind)) + ": " + printable(hypothesis.evidence, 600));
    if (!hypothesis.confirm.empty())
      out += command("confirm", printable(hypothesis.confirm, 600));
  }
  const Tally t = tally(rows);
  const std::int64_t others = static_cast<std::int64_t>(std::count_if(
      result.culprits.begin(), result.culprits.end(), [&](const ProbeResult& c) { return !same_probe(c, it); }));
  out += paragraph(fmt::format("{} bitwise or within, {} spoiled by an earlier one, {}; {} of {} compared",
                               plural(t.inside, "probe is", "probes are"), count(t.spoiled),
                               plural(others, "other culprit"), count(result.compared), count(result.expected)),
                   "", "  ");
  if (!first.worst.empty())
    out += worst_text(first, ink);
  return out;
}

std::string around_text(const CompareResult& result, const std::vector<const ProbeResult*>& rows, const Ink& ink) {
  const ProbeResult& it = result.first_divergence->result;
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const ProbeResult* row) { return same_probe(*row, it); });
  if (found == rows.end())
    return {};
  const auto begin = found - std::min<std::ptrdiff_t>(before_it, found - rows.begin());
  const auto end = found + std::min<std::ptrdiff_t>(after_it + 1, rows.end() - found);
  ProbeTable table;
  for (auto row = begin; row != end; ++row)
    table.add(row == found ? it : **row, row == found);
  if (const auto& spoilt = result.first_divergence->spoils_first) {
    auto row = std::find_if(end, rows.end(), [&](const ProbeResult* r) { return same_probe(*r, *spoilt); });
    if (row != rows.end())
      table.gap();
    for (std::size_t i = 0; i < spoilt_rows && row != rows.end(); ++i, ++row)
      table.add(**row, false);
  }
  return heading(ink, "around it") + table.text(ink);
}

std::string culprits_text(const CompareResult& result, const Ink& ink, bool all) {
  std::vector<const ProbeResult*> others;
  for (const ProbeResult& culprit : result.culprits)
    if (!result.first_divergence || !same_probe(culprit, result.first_divergence->result))
      others.push_back(&culprit);
  if (others.empty())
    return {};
  const std::size_t shown = all ? others.size() : std::min(others.size(), listed_culprits);
  ProbeTable table;
  for (std::size_t i = 0; i < shown; ++i)
    table.add(*others[i], false);
  std::string out = heading(ink, "other culprits", " (outside while their observed inputs are inside)");
  out += table.text(ink);
  if (shown < others.size())
    out += fmt::format("  and {} more; --all lists them\n", count(static_cast<std::int64_t>(others.size() - shown)));
  return out;
}

std::string undecided_text(const CompareResult& result, const Ink& ink, bool all) {
  Table table(
      {{"step", true}, {"probe", false}, {"segment", false, true}, {"outcome", false}, {"reason", false, false, true}});
  std::int64_t total = 0;
  for (const ProbeResult& probe : result.probes) {
    if (severity(probe) != 2)
      continue;
    if (++total <= static_cast<std::int64_t>(listed_culprits) || all)
      table.add({step_text(probe.step), printable(probe.probe),
                 probe.segment == probes::Segment::all ? "" : std::string(probes::name(probe.segment)),
                 std::string(goldens::name(probe.outcome)), printable(probe.reason)},
                Table::Tone::doubtful);
  }
  if (table.empty())
    return {};
  std::string out = heading(ink, "not judged") + table.text(ink);
  if (!all && total > static_cast<std::int64_t>(listed_culprits))
    out += fmt::format("  and {} more; --all lists them\n", count(total - static_cast<std::int64_t>(listed_culprits)));
  return out;
}

std::string passed_text(const CompareResult& result, const std::vector<const ProbeResult*>& rows, const Ink& ink) {
  const Tally t = tally(rows);
  const bool good = result.exit_code == ExitCode::ok;
  std::string subject;
  if (!good)
    subject = fmt::format("{} of {} expected probes were compared", count(result.compared), count(result.expected));
  else if (t.within == 0)
    subject = fmt::format("all {} probes are bitwise equal", count(t.bitwise));
  else
    subject = fmt::format("{} probes are bitwise equal, {} within tolerance", count(t.bitwise), count(t.within));
  std::string out = headline(good ? "PASS" : upper(goldens::name(result.verdict)), subject,
                             static_cast<int>(result.exit_code), ink, good);
  out += paragraph(fmt::format("{} of {} expected (step, probe) pairs compared: {} bitwise, {} within, {} not judged{}",
                               count(result.compared), count(result.expected), count(t.bitwise), count(t.within),
                               count(t.undecided),
                               t.extra > 0 ? fmt::format("; {} only in the candidate", count(t.extra)) : ""));
  if (result.first_difference) {
    const ProbeResult& difference = *result.first_difference;
    out += labelled("first", fmt::format("difference at {}, {}: {}", printable(difference.probe), where(difference),
                                         figures(difference)));
  }
  std::vector<const ProbeResult*> closest;
  for (const ProbeResult* row : rows)
    if (row->outcome == Outcome::within && row->tolerance.allowed > 0)
      closest.push_back(row);
  std::sort(closest.begin(), closest.end(), [](const ProbeResult* a, const ProbeResult* b) {
    return a->rel_l2 / a->tolerance.allowed > b->rel_l2 / b->tolerance.allowed;
  });
  if (!closest.empty()) {
    ProbeTable table;
    for (std::size_t i = 0; i < std::min<std::size_t>(closest.size(), 5); ++i)
      table.add(*closest[i], false);
    out += heading(ink, "closest to their tolerance") + table.text(ink);
  }
  return out;
}

std::string next_text(const CompareResult& result, const Ink& ink) {
  if (!result.first_divergence)
    return {};
  const FirstDivergence& first = *result.first_divergence;
  std::string out;
  if (!first.probe_next.empty()) {
    std::string names;
    for (const std::string& name : first.probe_next)
      names += (names.empty() ? "" : ", ") + printable(name);
    out += labelled("capture", names);
  }
  if (!first.repro.empty())
    out += command("run", printable(first.repro, 600));
  return out.empty() ? out : heading(ink, "next") + out;
}

} // namespace

std::string comparison_text(const CompareResult& result, const Ink& ink, bool all) {
  const auto rows = by_probe(result);
  std::string out = result.first_divergence ? diverged_text(result, rows, ink) : passed_text(result, rows, ink);
  if (all) {
    ProbeTable table;
    for (const ProbeResult& probe : result.probes)
      table.add(probe, result.first_divergence && same_probe(probe, result.first_divergence->result) &&
                           probe.segment == result.first_divergence->result.segment);
    out += heading(ink, "every probe and segment") + table.text(ink);
  } else if (result.first_divergence) {
    out += around_text(result, rows, ink);
  }
  out += culprits_text(result, ink, all);
  out += undecided_text(result, ink, all);
  if (!result.first_divergence && !result.hypotheses.empty()) {
    out += "\n";
    for (const goldens::Hypothesis& hypothesis : result.hypotheses)
      out += labelled("cause", printable(hypothesis.kind) + ": " + printable(hypothesis.evidence, 600));
  }
  if (!result.notes.empty()) {
    out += heading(ink, "notes");
    for (const std::string& note : result.notes)
      out += paragraph(printable(note, 600), "  - ", "    ");
  }
  return out + next_text(result, ink);
}

} // namespace h3diff::cli
