// Runs of the named case `tiny`, from the outside.
#include "h3diff/harness/run.hpp"
#include "h3diff/probes/dump.hpp"
#include "temporary_folder.hpp"
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

namespace h3diff::harness {
namespace {

using probes::DumpReader;
using probes::Level;

RunOptions tiny(const std::string& output = "") {
  RunOptions options;
  options.source = "tiny";
  options.profile = "diffusers-bf16";
  options.output = output;
  return options;
}

RunSummary done(const RunOptions& options) {
  auto summary = run(options);
  EXPECT_TRUE(summary) << summary.error().message;
  return summary ? *summary : RunSummary{};
}

DumpReader opened(const std::string& path) {
  auto dump = DumpReader::open(path);
  if (!dump)
    throw std::runtime_error(dump.error().message);
  return *std::move(dump);
}

void expect_refused(const RunOptions& options, ExitCode code, std::initializer_list<const char*> says) {
  const auto summary = run(options);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, code) << summary.error().message;
  for (const char* part : says)
    EXPECT_NE(summary.error().message.find(part), std::string::npos) << summary.error().message;
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

TEST(Run, ProbesChangeNoBitOfTheOutputs) {
  const test::TemporaryFolder folder;
  RunOptions off = tiny();
  off.steps = 2;
  const RunSummary without = done(off);
  ASSERT_GT(without.video.size(), 1000U);
  ASSERT_GT(without.audio.size(), 100U);
  for (const char* capture : {"digest", "stats", "rows", "full"}) {
    RunOptions on = tiny(folder / (std::string(capture) + ".h5"));
    on.steps = 2;
    on.capture = capture;
    const RunSummary with = done(on);
    EXPECT_EQ(with.video, without.video) << capture;
    EXPECT_EQ(with.audio, without.audio) << capture;
    EXPECT_GT(with.probes, 900) << capture;
  }
}

TEST(Run, TwoRunsGiveTheSameDump) {
  const test::TemporaryFolder folder;
  done(tiny(folder / "a.h5"));
  done(tiny(folder / "b.h5"));
  const DumpReader a = opened(folder / "a.h5"), b = opened(folder / "b.h5");
  ASSERT_EQ(a.index().size(), b.index().size());
  for (std::size_t i = 0; i < a.index().size(); ++i) {
    EXPECT_EQ(a.index()[i].digest, b.index()[i].digest) << a.index()[i].probe;
    EXPECT_EQ(*a.sketch(a.index()[i]), *b.sketch(b.index()[i])) << a.index()[i].probe;
  }
  EXPECT_EQ(a.facts(), b.facts());
}

TEST(Run, TheDumpHoldsEveryProbeOfTheGraphInItsOrder) {
  const test::TemporaryFolder folder;
  done(tiny(folder / "run.h5"));
  const DumpReader dump = opened(folder / "run.h5");
  std::vector<std::string> seen;
  for (const auto& row : dump.index())
    if (seen.empty() || seen.back() != row.probe)
      seen.push_back(row.probe);
  std::vector<std::string> expected;
  const probes::Graph graph(*probes::shape_from_facts(dump.facts()));
  for (const auto& probe : graph.probes())
    expected.push_back(probe.name);
  EXPECT_EQ(seen, expected);
  ASSERT_FALSE(dump.dispatch().empty());
  for (const auto& row : dump.dispatch()) {
    EXPECT_GT(row.calls, 0) << row.op;
    EXPECT_EQ(row.fallbacks, 0) << row.op;
    EXPECT_EQ(row.implementation, row.declared) << row.op;
  }
}

TEST(Run, TheByteBudgetTurnsTensorsIntoStatistics) {
  const test::TemporaryFolder folder;
  RunOptions options = tiny(folder / "run.h5");
  options.capture = "full,budget=64KiB";
  const RunSummary summary = done(options);
  EXPECT_GT(summary.over_budget, 0);
  const DumpReader dump = opened(folder / "run.h5");
  EXPECT_EQ(dump.fact("tensors_over_budget"), std::to_string(summary.over_budget));
  std::int64_t bytes = 0, demoted = 0;
  for (const auto& row : dump.index()) {
    if (row.level == Level::full)
      bytes += row.rows * row.cols * static_cast<std::int64_t>(probes::item_size(row.dtype));
    else
      ++demoted;
    EXPECT_GE(row.level, Level::stats) << row.probe;
  }
  EXPECT_GT(bytes, 0);
  EXPECT_LE(bytes, 64 * 1024);
  EXPECT_EQ(demoted, summary.over_budget);
}

TEST(Run, ZeroColumnsChangesThoseColumnsAlone) {
  const test::TemporaryFolder folder;
  done(tiny(folder / "plain.h5"));
  RunOptions options = tiny(folder / "zeroed.h5");
  options.zero_columns = "adaln_proj:3-5";
  done(options);
  const DumpReader plain = opened(folder / "plain.h5"), zeroed = opened(folder / "zeroed.h5");
  const std::string weight = "weights.blocks.0.adaln_proj";
  const auto before = plain.columns(weight), after = zeroed.columns(weight);
  ASSERT_EQ(before.size(), after.size());
  ASSERT_GT(before.size(), 8U);
  for (std::size_t c = 0; c < before.size(); ++c) {
    const bool inside = c == 3 || c == 4;
    EXPECT_EQ(before[c].digest == after[c].digest, !inside) << c;
    EXPECT_EQ(after[c].l2 == 0, inside) << c;
  }
}

TEST(Run, AnInterruptedRunKeepsItsFinishedSteps) {
  const test::TemporaryFolder folder;
  RunOptions options = tiny(folder / "run.h5");
  options.steps = 3;
  static volatile bool interrupted;
  interrupted = false;
  options.progress = [](int step, int, const std::string&) { interrupted = interrupted || step == 1; };
  const auto summary = run(options, &interrupted);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, ExitCode::environment);
  EXPECT_NE(summary.error().message.find("interrupted after 2 of 3 steps"), std::string::npos)
      << summary.error().message;
  EXPECT_FALSE(std::filesystem::exists(options.output));
  const DumpReader partial = opened(options.output + ".partial");
  EXPECT_FALSE(partial.finished());
  ASSERT_EQ(partial.steps().size(), 2U);
  const auto last = std::count_if(partial.index().begin(), partial.index().end(),
                                  [](const auto& row) { return row.step == 1 && row.probe == "latent.video"; });
  EXPECT_EQ(last, 1);
}

TEST(Run, WhatCannotBeRunIsRefusedByName) {
  const test::TemporaryFolder folder;
  const std::string output = folder / "run.h5";
  RunOptions options = tiny(output);
  options.device = "cuda:97";
  expect_refused(options, ExitCode::environment, {"cuda:97"});
  options.device = "tpu";
  expect_refused(options, ExitCode::usage, {"tpu"});
  options = tiny(output);
  options.profile = "no-such-profile";
  expect_refused(options, ExitCode::usage, {"no-such-profile", "diffusers-bf16"});
  options = tiny(output);
  options.source = "no-such-case";
  expect_refused(options, ExitCode::usage, {"no-such-case", "tiny"});
  options = tiny(output);
  options.capture = "blocks.99.*=full";
  expect_refused(options, ExitCode::usage, {"blocks.99.*"});
  options = tiny(output);
  options.zero_columns = "adaln_proj:8-1000000";
  expect_refused(options, ExitCode::usage, {"adaln_proj"});
  options = tiny(output);
  options.threads = 0;
  expect_refused(options, ExitCode::usage, {"0 threads"});
}

} // namespace
} // namespace h3diff::harness
