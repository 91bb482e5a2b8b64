#include "h3diff/goldens/compare.hpp"
#include "align.hpp"
#include "dispatch.hpp"
#include "facts.hpp"
#include "hypotheses.hpp"
#include "judge.hpp"
#include "localise.hpp"
#include "verdict.hpp"
#include "verify.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <map>

namespace h3diff::goldens {

using probes::DumpReader;
using probes::Graph;

namespace {

constexpr std::size_t most_details = 16; // culprits whose tensors are read once more for rows and columns
constexpr std::size_t most_healing = 8;

// How many blocks the names of a dump's probes speak of: 1 + the largest N of "PREFIXN.".
std::int64_t blocks_named(const DumpReader& dump, std::string_view prefix) {
  std::int64_t blocks = 0;
  for (const auto& row : dump.index()) {
    std::string_view name = row.probe;
    if (name.starts_with("weights."))
      name.remove_prefix(std::string_view("weights.").size());
    if (!name.starts_with(prefix))
      continue;
    std::int64_t number = -1;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
    blocks = std::max(blocks, number + 1);
  }
  return blocks;
}

// Of a foreign runtime that does not state its model: what the op graph needs, read off the probes' names.
probes::ModelShape shape_by_names(const DumpReader& reference, const DumpReader& candidate) {
  probes::ModelShape shape;
  shape.num_layers = std::max(blocks_named(reference, "blocks."), blocks_named(candidate, "blocks."));
  shape.num_refiner_layers =
      std::max(blocks_named(reference, "token_refiner.blocks."), blocks_named(candidate, "token_refiner.blocks."));
  for (const auto* dump : {&reference, &candidate})
    for (const auto& row : dump->index())
      if (row.probe == "weights.adaln_t_table")
        shape.curve_grid = std::max<std::int64_t>(1, row.rows);
  return shape;
}

// The model's shape comes from the reference; where that does not say it, from the candidate; else from the names.
Result<probes::ModelShape> shape_of(const DumpReader& reference, const DumpReader& candidate) {
  const auto states_it = [](const DumpReader& dump) {
    return dump.facts().contains("adaln_form") && dump.facts().contains("num_layers");
  };
  const DumpReader& source = states_it(reference) || !states_it(candidate) ? reference : candidate;
  Result<probes::ModelShape> shape =
      states_it(source) ? probes::shape_from_facts(source.facts()) : shape_by_names(reference, candidate);
  if (!shape)
    return bad_input(fmt::format("{}: {}", source.path(), shape.error().message));
  constexpr std::int64_t most_blocks = 4096; // a stranger's number that sizes the graph
  const bool sane = shape->num_layers >= 0 && shape->num_layers <= most_blocks && shape->num_refiner_layers >= 0 &&
                    shape->num_refiner_layers <= most_blocks;
  if (!sane)
    return bad_input(fmt::format("{}: {} blocks and {} refiner blocks: more than {} are not believed", source.path(),
                                 shape->num_layers, shape->num_refiner_layers, most_blocks));
  return shape;
}

// The reference's rows by place, for the question whether a constant tensor has live neighbours.
class ReferenceRows {
public:
  ReferenceRows(const Graph& graph, const Alignment& alignment) : graph_(graph) {
    for (const auto& pair : alignment.pairs) {
      if (!pair.info)
        continue;
      for (const auto& segment : pair.segments)
        if (segment.reference && segment.reference->level >= probes::Level::stats)
          rows_.emplace(Place{pair.step, graph.position(pair.probe), segment.segment}, segment.reference);
    }
  }

  bool neighbours_alive(const ProbePair& pair, probes::Segment segment) const {
    const Place here{pair.step, graph_.position(pair.probe), segment};
    const auto known = [this](const Place& place) { return rows_.contains(place); };
    for (const Place& input : lineage(graph_, here, known).observed) {
      if (input.step < 0)
        continue; // weights
      const auto* row = rows_.at(input);
      if (row->statistics.count > 1 && !is_constant(*row))
        return true;
    }
    return false;
  }

private:
  const Graph& graph_;
  std::map<Place, const probes::IndexRow*> rows_;
};

bool is_given(const ProbePair& pair) { // by the caller, not by the run itself
  if (!pair.info || pair.info->op != "input")
    return false;
  return pair.step == 0 || (pair.probe != "input.video" && pair.probe != "input.audio");
}

void as_drift(ProbeResult& result) {
  const std::string what = result.outcome == Outcome::diverged ? "" : fmt::format("{}: ", name(result.outcome));
  const std::string why = result.probe == "input.timestep" && result.step > 0
                              ? "the runs follow different schedules; "
                              : "the runs were given different inputs, nothing later is judged; ";
  result.reason = why + what + result.reason;
  result.outcome = Outcome::input_drift;
}

struct Judged {
  std::vector<ProbeResult> results;
  std::vector<std::pair<const ProbePair*, const SegmentPair*>> sources; // of each result
};

Result<Judged> judge_all(const JudgeContext& context, const Alignment& alignment) {
  Judged out;
  std::optional<std::int32_t> drifted;
  for (const auto& pair : alignment.pairs) {
    if (drifted && (pair.step != *drifted || !is_given(pair)))
      continue;
    for (const auto& segment : pair.segments) {
      auto result = judge(context, pair, segment);
      if (!result)
        return result.error();
      if (is_given(pair) && is_outside(result->outcome)) {
        as_drift(*result);
        drifted = pair.step;
      }
      out.results.push_back(std::move(*result));
      out.sources.emplace_back(&pair, &segment);
    }
  }
  return out;
}

// Rows, columns and worst elements from the tensors themselves.
Result<void> detail(const JudgeContext& context, const SegmentPair& segment, std::int64_t worst, ProbeResult& result,
                    std::vector<WorstElement>* elements) {
  if (!segment.reference || !segment.candidate || result.outcome == Outcome::shape)
    return {};
  auto tensors = tensors_of(context, *segment.reference, *segment.candidate);
  if (!tensors)
    return tensors.error();
  if (!*tensors)
    return {};
  auto found = tensor_detail(**tensors, result.tolerance.allowed, worst);
  if (!found)
    return found.error();
  if (elements)
    *elements = std::move(found->worst);
  if (result.evidence != Evidence::tensors || (*tensors)->sampled())
    return {};
  if (result.bad_columns.empty() && !found->bad_columns.empty()) {
    result.bad_columns = found->bad_columns;
    result.reason += "; columns " + in_words(result.bad_columns);
  }
  if (!found->bad_rows.empty()) {
    result.bad_rows = found->bad_rows;
    result.reason += "; rows " + in_words(result.bad_rows);
  }
  return {};
}

std::string narrowing_command(const DumpReader& candidate, const FirstDivergence& first) {
  const std::int32_t steps = std::max(first.result.step, 0) + 1;
  if (first.result.outcome == Outcome::dispatch)
    return "h3diff doctor";
  std::string capture = "stats";
  std::size_t named = 0;
  for (const auto& probe : first.probe_next)
    if (++named <= 8)
      capture += fmt::format(",{}=full", probe);
  if (named == 0)
    capture += fmt::format(",{}=full", probes::printable(first.result.probe, 80));
  return capture_command(candidate, capture, steps, "narrowed.h5");
}

std::string after_dispatch(const std::vector<ProbeResult>& results, const Localisation& found) {
  if (!found.first_divergence)
    return "the tensors themselves: nothing compared is outside";
  const auto& first = results[*found.first_divergence];
  return fmt::format("the tensors themselves: {} is first outside, step {}, {}: {}, {}", probes::printable(first.probe),
                     first.step, probes::name(first.segment), name(first.outcome), first.reason);
}

} // namespace

Result<CompareResult> compare(const DumpReader& reference, const DumpReader& candidate, const CompareOptions& options) {
  auto shape = shape_of(reference, candidate);
  if (!shape)
    return shape.error();
  const Graph graph(*shape);
  if (options.verify) {
    if (auto sound = verify_tensors(reference); !sound)
      return sound.error();
    if (auto sound = verify_tensors(candidate); !sound)
      return sound.error();
  }

  CompareResult out;
  out.reference_path = reference.path();
  out.candidate_path = candidate.path();
  out.notes = fact_notes(reference, candidate);
  for (auto& note : declared_differences(reference, candidate))
    out.notes.push_back(std::move(note));
  std::vector<ProbeResult> dispatch = judge_dispatch(candidate, "candidate", graph);
  for (auto& result : judge_dispatch(reference, "reference", graph))
    dispatch.push_back(std::move(result));

  const Alignment alignment = align(reference, candidate, graph);
  out.notes.insert(out.notes.end(), alignment.notes.begin(), alignment.notes.end());
  auto expectation = Expectation::make(options.expect, alignment, graph);
  if (!expectation)
    return expectation.error();

  const ReferenceRows rows(graph, alignment);
  const JudgeContext context{
      reference,
      candidate,
      graph,
      ToleranceContext{&graph, options.factor, claimed_dtype(reference), claimed_dtype(candidate)},
      version_difference(reference, candidate),
      options.threads,
      statistics_slack(reference, candidate),
      [&rows](const ProbePair& pair, probes::Segment segment) { return rows.neighbours_alive(pair, segment); }};
  auto judged = judge_all(context, alignment);
  if (!judged)
    return judged.error();
  const Localisation found = localise(judged->results, graph);

  for (std::size_t i = 0; i < found.culprits.size() && i < most_details; ++i) {
    const std::size_t at = found.culprits[i];
    if (at == found.first_divergence)
      continue; // below, with its worst elements
    if (auto done = detail(context, *judged->sources[at].second, 0, judged->results[at], nullptr); !done)
      return done.error();
  }
  std::vector<WorstElement> worst;
  if (found.first_divergence) {
    const std::size_t at = *found.first_divergence;
    if (auto done = detail(context, *judged->sources[at].second, options.worst, judged->results[at], &worst); !done)
      return done.error();
  }

  out.culprits = dispatch;
  for (const std::size_t at : found.culprits)
    out.culprits.push_back(judged->results[at]);
  if (found.first_difference)
    out.first_difference = judged->results[*found.first_difference];
  if (!dispatch.empty()) {
    out.first_divergence.emplace();
    out.first_divergence->result = dispatch.front();
    out.notes.push_back(after_dispatch(judged->results, found));
  } else if (found.first_divergence) {
    out.first_divergence = explain(judged->results, *found.first_divergence, graph);
    out.first_divergence->worst = std::move(worst);
  }
  if (out.first_divergence)
    out.first_divergence->repro = narrowing_command(candidate, *out.first_divergence);

  auto healed = healing(judged->results, found.culprits, graph);
  for (std::size_t i = 0; i < healed.size() && i < most_healing; ++i)
    out.notes.push_back(std::move(healed[i]));
  out.hypotheses = hypotheses(
      Findings{context, alignment, judged->results, found.culprits, [&](std::size_t i) { return judged->sources[i]; }});
  out.probes = std::move(judged->results);
  conclude(out, alignment, *expectation);
  return out;
}

Result<CompareResult> compare(const std::string& reference, const std::string& candidate,
                              const CompareOptions& options) {
  auto left = DumpReader::open(reference);
  if (!left)
    return left.error();
  auto right = DumpReader::open(candidate);
  if (!right)
    return right.error();
  return compare(*left, *right, options);
}

} // namespace h3diff::goldens
