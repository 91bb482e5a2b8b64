// The terminal report on hand-made results: what stands first, how wide it is, what is escaped.
#include "report.hpp"
#include <gtest/gtest.h>
#include <limits>
#include <sstream>

namespace h3diff::cli {
namespace {

using goldens::CompareResult;
using goldens::Outcome;
using goldens::ProbeResult;

ProbeResult probe(std::int32_t step, const std::string& name, Outcome outcome, double rel_l2 = 0) {
  ProbeResult result;
  result.step = step;
  result.probe = name;
  result.op = "linear";
  result.segment = step < 0 ? probes::Segment::all : probes::Segment::video;
  result.outcome = outcome;
  result.evidence = outcome == Outcome::bitwise ? goldens::Evidence::digest : goldens::Evidence::sketch;
  result.rel_l2 = rel_l2;
  result.tolerance = {0.0061, "1.5 x 0.0041 (bfloat16)"};
  return result;
}

CompareResult diverged() {
  CompareResult result;
  result.verdict = Outcome::diverged;
  result.exit_code = ExitCode::mismatch;
  result.compared = result.expected = 20;
  for (int i = 0; i < 20; ++i) {
    auto row = probe(0, "token_refiner.blocks.0.attn.qkv_projection_" + std::to_string(i),
                     i < 10 ? Outcome::bitwise : Outcome::diverged, i < 10 ? 0.0 : 0.83);
    row.spoiled = i > 10;
    result.probes.push_back(row);
  }
  goldens::FirstDivergence first;
  first.result = result.probes[10];
  first.result.reason = std::string(300, 'r') + " absmax 10.44 there, 0.98 in columns 0-7";
  first.result.bad_columns = {{8, 15}};
  first.last_good = result.probes[9].probe;
  first.worst.push_back({3, 12, 0.25, 10.44, "3e80", "4127"});
  first.spoils_first = probe(0, "blocks.0.adaln.shift_msa", Outcome::diverged, 0.5);
  first.repro = "h3diff compare a.h5 b.h5";
  result.first_divergence = first;
  result.culprits.push_back(first.result);
  for (int i = 0; i < 12; ++i)
    result.culprits.push_back(probe(0, "blocks." + std::to_string(i) + ".adaln.shift_msa", Outcome::diverged, 0.4));
  result.hypotheses.push_back({"adaln_padding", "trailing columns look never loaded", "h3diff run bundle"});
  result.notes.emplace_back("a note");
  return result;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    out.push_back(line);
  return out;
}

std::ptrdiff_t at(const std::string& text, const std::string& part) {
  const auto position = text.find(part);
  EXPECT_NE(position, std::string::npos) << part << "\n" << text;
  return static_cast<std::ptrdiff_t>(position);
}

TEST(Report, VerdictThenEvidenceThenTableThenCulpritsThenNext) {
  const std::string text = comparison_text(diverged(), Ink(false), false);
  EXPECT_EQ(text.rfind("DIVERGED  token_refiner.blocks.0.attn.qkv_projection_10  step 0, video", 0), 0u) << text;
  EXPECT_TRUE(lines(text)[0].ends_with("exit 1"));
  const std::vector<std::string> order{"columns 8-15",
                                       "absmax 10.44",
                                       "relative L2 0.83, allowed 0.0061 = 1.5 x",
                                       "blocks.0.adaln.shift_msa first",
                                       "adaln_padding",
                                       "around it",
                                       "other culprits (outside",
                                       "notes",
                                       "next"};
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    EXPECT_LT(at(text, order[i]), at(text, order[i + 1])) << order[i] << " / " << order[i + 1] << "\n" << text;
}

TEST(Report, CountsWhatIsSpoiledAndWhatIsNot) {
  const std::string text = comparison_text(diverged(), Ink(false), false);
  at(text, "10 probes are bitwise or within, 9 spoiled by an earlier one, 12 other culprits; 20 of 20 compared");
  at(text, "and 4 more; --all lists them");
  EXPECT_EQ(comparison_text(diverged(), Ink(false), true).find("--all lists them"), std::string::npos);
}

TEST(Report, LinesFitTheTerminal) {
  CompareResult result = diverged();
  result.first_divergence->result.reason =
      "a reason of many words, which goes on and on and on until it has to be broken "
      "into several lines so that nothing is cut off at the right of the screen";
  for (const bool all : {false, true})
    for (const std::string& line : lines(comparison_text(result, Ink(false), all)))
      EXPECT_LE(line.size(), line_width) << line;
}

TEST(Report, ColourOnlyWhenAskedFor) {
  EXPECT_EQ(comparison_text(diverged(), Ink(false), true).find('\x1b'), std::string::npos);
  EXPECT_NE(comparison_text(diverged(), Ink(true), false).find("\x1b[1;31mDIVERGED"), std::string::npos);
}

TEST(Report, TextFromADumpIsEscaped) {
  CompareResult result = diverged();
  result.notes = {"case is \x1b[2J\x07 here"};
  result.first_divergence->result.reason = "\x1b[31m";
  const std::string text = comparison_text(result, Ink(false), false);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
}

TEST(Report, APassSaysHowMuchWasCompared) {
  CompareResult result;
  result.verdict = Outcome::within;
  result.compared = result.expected = 3;
  result.probes = {probe(0, "input.video", Outcome::bitwise), probe(0, "blocks.0.out", Outcome::within, 0.001),
                   probe(0, "pred.video", Outcome::within, 0.005)};
  result.first_difference = result.probes[1];
  const std::string text = comparison_text(result, Ink(false), false);
  EXPECT_EQ(text.rfind("PASS  1 probes are bitwise equal, 2 within tolerance", 0), 0u) << text;
  at(text, "3 of 3 expected (step, probe) pairs compared: 1 bitwise, 2 within, 0 not judged");
  // The one nearest to its limit comes first.
  const auto table = text.substr(static_cast<std::size_t>(at(text, "closest to their tolerance")));
  EXPECT_LT(at(table, "pred.video"), at(table, "blocks.0.out"));
}

TEST(Report, TooLittleEvidenceIsNoPass) {
  CompareResult result;
  result.verdict = Outcome::missing;
  result.exit_code = ExitCode::no_evidence;
  result.compared = 1;
  result.expected = 2;
  result.probes = {probe(0, "input.video", Outcome::bitwise), probe(0, "pred.video", Outcome::missing)};
  const std::string text = comparison_text(result, Ink(false), false);
  EXPECT_EQ(text.rfind("MISSING  1 of 2 expected probes were compared", 0), 0u) << text;
  at(text, "not judged");
  at(text, "pred.video");
}

TEST(Report, UnknownFiguresAreDashes) {
  CompareResult result = diverged();
  ProbeResult& it = result.first_divergence->result;
  it.rel_l2 = it.std_ratio = it.cosine = std::numeric_limits<double>::quiet_NaN();
  const std::string text = comparison_text(result, Ink(false), false);
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

TEST(Terminal, Numbers) {
  EXPECT_EQ(count(80661), "80,661");
  EXPECT_EQ(count(-1234567), "-1,234,567");
  EXPECT_EQ(count(999), "999");
  EXPECT_EQ(byte_size(1023), "1023 B");
  EXPECT_EQ(byte_size(std::int64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(number(0.0061234), "0.00612");
  EXPECT_EQ(plural(1, "probe"), "1 probe");
  EXPECT_EQ(plural(1200, "probe"), "1,200 probes");
}

TEST(Terminal, ShortenKeepsTheEnd) {
  EXPECT_EQ(shorten("blocks.0.out", 20), "blocks.0.out");
  const std::string cut = shorten("token_refiner.blocks.1.attn.out_proj", 24);
  EXPECT_EQ(cut.size(), 24u);
  EXPECT_TRUE(cut.ends_with("attn.out_proj"));
}

} // namespace
} // namespace h3diff::cli
