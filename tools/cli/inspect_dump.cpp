#include "h3diff/probes/dump.hpp"
#include "inspect.hpp"
#include "terminal.hpp"
#include <fmt/format.h>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

namespace h3diff::cli {
namespace {

using nlohmann::json;
using probes::IndexRow;
using probes::printable;

json fact_json(const probes::Fact& fact) {
  return std::visit([](const auto& value) { return json(value); }, fact);
}

std::string fact_text(const probes::Fact& fact) {
  if (const auto* text = std::get_if<std::string>(&fact))
    return printable(*text);
  if (const auto* integer = std::get_if<std::int64_t>(&fact))
    return fmt::format("{}", *integer);
  return fmt::format("{:.9g}", std::get<double>(fact));
}

json finite(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json row_json(const IndexRow& row) {
  const probes::Statistics& s = row.statistics;
  return {{"step", row.step},
          {"probe", row.probe},
          {"segment", probes::name(row.segment)},
          {"dtype", probes::name(row.dtype)},
          {"stored_dtype", probes::name(row.stored_dtype)},
          {"rows", row.rows},
          {"cols", row.cols},
          {"digest", row.digest.hex()},
          {"level", probes::name(row.level)},
          {"zeros", s.zeros},
          {"nan", s.nan},
          {"inf", s.inf},
          {"subnormal", s.subnormal},
          {"mean", finite(s.mean)},
          {"std", finite(s.std)},
          {"l2", finite(s.l2)},
          {"min", finite(s.min)},
          {"max", finite(s.max)},
          {"absmax", finite(s.absmax)},
          {"absmax_row", s.absmax_row},
          {"absmax_col", s.absmax_col},
          {"cosine", finite(row.cosine)}};
}

std::string step_name(std::int32_t step) { return step < 0 ? "load" : fmt::format("{}", step); }

std::string facts_text(const probes::DumpReader& dump) {
  std::string out;
  for (const auto& [name, fact] : dump.facts())
    if (std::string text = fact_text(fact); !text.empty())
      out += fmt::format("  {:<22}  {}\n", printable(name, 40), shorten(text, 74));
  return out;
}

std::string steps_text(const probes::DumpReader& dump, const Ink& ink) {
  Table table({{"step", true}, {"sigma video", true}, {"next", true}, {"sigma audio", true}, {"next", true}});
  for (const probes::StepRow& step : dump.steps())
    table.add({step_name(step.step), fmt::format("{:.6g}", step.sigma_video),
               fmt::format("{:.6g}", step.sigma_video_next), fmt::format("{:.6g}", step.sigma_audio),
               fmt::format("{:.6g}", step.sigma_audio_next)});
  return table.empty() ? std::string() : heading(ink, "steps") + table.text(ink);
}

std::string dispatch_text(const probes::DumpReader& dump, const Ink& ink) {
  Table table({{"op", false}, {"implementation", false}, {"declared", false}, {"calls", true}, {"fallbacks", true}});
  for (const probes::DispatchRow& row : dump.dispatch())
    table.add({printable(row.op), printable(row.implementation), printable(row.declared), count(row.calls),
               count(row.fallbacks)},
              row.fallbacks > 0 ? Table::Tone::doubtful : Table::Tone::plain);
  return table.empty() ? std::string() : heading(ink, "dispatch") + table.text(ink);
}

// Blocks look alike: "blocks.*.attn.q" stands for all of them, so that the summary fits a screen.
std::string family(const std::string& probe) {
  std::string out;
  for (std::size_t i = 0; i < probe.size();) {
    const bool starts_number = (i == 0 || probe[i - 1] == '.') && probe[i] >= '0' && probe[i] <= '9';
    if (!starts_number) {
      out += probe[i++];
      continue;
    }
    out += '*';
    while (i < probe.size() && probe[i] >= '0' && probe[i] <= '9')
      ++i;
  }
  return out;
}

struct Family {
  std::set<std::string> probes;
  std::set<std::string_view> dtypes;
  std::int64_t rows = 0, nonfinite = 0;
  double absmax = 0, std_low = INFINITY, std_high = 0;
  std::string_view level;
};

std::string summary_text(const std::vector<const IndexRow*>& rows, const Ink& ink) {
  std::vector<std::string> order;
  std::map<std::string, Family> families;
  for (const IndexRow* row : rows) {
    const std::string name = family(row->probe);
    const auto [at, is_new] = families.try_emplace(name);
    if (is_new)
      order.push_back(name);
    Family& to = at->second;
    to.probes.insert(row->probe);
    to.dtypes.insert(probes::name(row->dtype));
    to.level = probes::name(row->level);
    ++to.rows;
    to.nonfinite += row->statistics.nan + row->statistics.inf;
    if (row->statistics.absmax > to.absmax)
      to.absmax = row->statistics.absmax;
    if (std::isfinite(row->statistics.std)) {
      to.std_low = std::min(to.std_low, row->statistics.std);
      to.std_high = std::max(to.std_high, row->statistics.std);
    }
  }
  Table table({{"probes", false},
               {"n", true},
               {"rows", true, true},
               {"dtype", false, true},
               {"level", false, true},
               {"std", true},
               {"absmax", true},
               {"NaN, Inf", true}});
  for (const std::string& name : order) {
    const Family& f = families[name];
    std::string dtypes;
    for (const std::string_view dtype : f.dtypes) {
      dtypes += dtypes.empty() ? "" : "/";
      dtypes += dtype;
    }
    const std::string std_text = f.std_high == 0 && std::isinf(f.std_low) ? "-"
                                 : f.std_low == f.std_high
                                     ? number(f.std_low)
                                     : fmt::format("{} to {}", number(f.std_low), number(f.std_high));
    table.add({printable(name), count(static_cast<std::int64_t>(f.probes.size())), count(f.rows), dtypes,
               std::string(f.level), std_text, number(f.absmax), f.nonfinite > 0 ? count(f.nonfinite) : ""},
              f.nonfinite > 0 ? Table::Tone::bad : Table::Tone::plain);
  }
  return heading(ink, "probes", " (* stands for a block's number; --probe GLOB shows the statistics)") +
         table.text(ink);
}

std::string statistics_text(const std::vector<const IndexRow*>& rows, const Ink& ink) {
  Table table({{"step", true},
               {"probe", false},
               {"segment", false},
               {"shape", true},
               {"mean", true},
               {"std", true},
               {"min", true},
               {"max", true},
               {"bad", true},
               {"dtype", false, true},
               {"digest", false, true}});
  for (const IndexRow* row : rows) {
    const probes::Statistics& s = row->statistics;
    const std::int64_t bad = s.nan + s.inf;
    table.add({step_name(row->step), printable(row->probe), std::string(probes::name(row->segment)),
               fmt::format("{}x{}", row->rows, row->cols), number(s.mean), number(s.std), number(s.min), number(s.max),
               bad > 0 ? count(bad) : "", std::string(probes::name(row->dtype)), row->digest.hex().substr(0, 8)},
              bad > 0 ? Table::Tone::bad : Table::Tone::plain);
  }
  return table.text(ink);
}

} // namespace

Result<Inspection> inspect_dump(const InspectArguments& arguments) {
  const auto opened = probes::DumpReader::open(arguments.path);
  if (!opened)
    return opened.error();
  const probes::DumpReader& dump = *opened;
  const Ink ink = Ink::for_stream(1);

  std::vector<const IndexRow*> rows;
  std::map<std::string, std::int64_t> levels;
  for (const IndexRow& row : dump.index()) {
    if (arguments.step && row.step != *arguments.step)
      continue;
    if (!arguments.probe.empty() && !probes::glob_match(arguments.probe, row.probe))
      continue;
    rows.push_back(&row);
    ++levels[std::string(probes::name(row.level))];
  }
  if (rows.empty() && (!arguments.probe.empty() || arguments.step))
    return usage_error(
        fmt::format("{}: no probe matches{}{}", arguments.path,
                    arguments.probe.empty() ? "" : fmt::format(" --probe '{}'", printable(arguments.probe)),
                    arguments.step ? fmt::format(" --step {}", *arguments.step) : ""));

  std::int64_t steps = 0;
  for (const probes::StepRow& step : dump.steps())
    steps += step.step >= 0;
  std::string level_text;
  for (const auto& [level, n] : levels)
    level_text += fmt::format("{}{} {}", level_text.empty() ? "" : ", ", count(n), level);
  std::error_code error;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(arguments.path, error));

  Inspection out;
  out.text = fmt::format("{}  {}, {}, {}\n", ink.bold(arguments.path), byte_size(size), plural(steps, "step"),
                         plural(static_cast<std::int64_t>(rows.size()), "index row"));
  if (!dump.finished())
    out.text += fmt::format("  {}\n", ink.yellow("the run did not finish; only its complete steps are shown"));
  if (arguments.probe.empty()) {
    out.text += fmt::format("  levels  {}\n", level_text) + heading(ink, "run") + facts_text(dump);
    out.text += steps_text(dump, ink) + dispatch_text(dump, ink) + summary_text(rows, ink);
    if (!dump.unobserved().empty()) {
      out.text += heading(ink, "not observed");
      for (const probes::Unobserved& probe : dump.unobserved())
        out.text += paragraph(printable(probe.probe) + ": " + printable(probe.reason, 300), "  ", "      ");
    }
  } else {
    out.text += heading(ink, "statistics") + statistics_text(rows, ink);
  }

  json facts = json::object();
  for (const auto& [name, fact] : dump.facts())
    facts[name] = fact_json(fact);
  json step_list = json::array(), dispatch = json::array(), index = json::array();
  for (const probes::StepRow& step : dump.steps())
    step_list.push_back({{"step", step.step},
                         {"sigma_video", finite(step.sigma_video)},
                         {"sigma_audio", finite(step.sigma_audio)},
                         {"sigma_video_next", finite(step.sigma_video_next)},
                         {"sigma_audio_next", finite(step.sigma_audio_next)}});
  for (const probes::DispatchRow& row : dump.dispatch())
    dispatch.push_back({{"op", row.op},
                        {"implementation", row.implementation},
                        {"declared", row.declared},
                        {"calls", row.calls},
                        {"fallbacks", row.fallbacks}});
  for (const IndexRow* row : rows)
    index.push_back(row_json(*row));
  out.record = {{"kind", "dump"},     {"path", arguments.path}, {"finished", dump.finished()}, {"facts", facts},
                {"steps", step_list}, {"levels", levels},       {"dispatch", dispatch},        {"index", index}};
  return out;
}

} // namespace h3diff::cli
