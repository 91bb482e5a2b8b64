#include "comparing.hpp"
#include <nlohmann/json.hpp>
#include <cmath>
#include <fstream>
#include <limits>

namespace h3diff::goldens {
namespace {

using namespace testing;
using nlohmann::json;

void same_keys(const json& a, const json& b, const std::string& path) {
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items()) {
      ASSERT_TRUE(b.contains(key)) << path << "." << key << " stands on one side only";
      same_keys(value, b[key], path + "." + key);
    }
    for (const auto& [key, value] : b.items())
      ASSERT_TRUE(a.contains(key)) << path << "." << key << " stands on one side only";
  } else if (a.is_array() && b.is_array() && !a.empty() && !b.empty()) {
    same_keys(a[0], b[0], path + "[0]");
  }
}

// The run behind docs/record.md: the trailing columns of every AdaLN projection were never loaded. Weights are in full.
json example() {
  const auto is_projection = [](const std::string& probe) {
    return probe.starts_with("weights.") && probe.ends_with("adaln_proj");
  };
  const auto fill_tail = [](Values& values, float scale) {
    for (std::int64_t r = 0; r < values.rows; ++r)
      for (std::int64_t c = 8; c < values.cols; ++c)
        values.at(r, c) = scale * static_cast<float>((r * 31 + c * 17) % 101 - 50) / 50;
  };
  SampleRun reference;
  reference.shape = tiny_shape(true);
  reference.steps = 1;
  reference.level = [](const std::string& probe) { return probe.starts_with("weights.") ? Level::full : Level::stats; };
  reference.edit = [=](const Where& where, Values& values) {
    if (is_projection(std::get<1>(where)))
      fill_tail(values, 0);
  };
  SampleRun candidate = reference;
  const auto spoiled = downstream(candidate, {-1, "weights.blocks.0.adaln_proj", Segment::all});
  candidate.edit = [=](const Where& where, Values& values) {
    if (is_projection(std::get<1>(where)))
      fill_tail(values, 10.44F);
    else
      perturb(spoiled, 0.5F)(where, values);
  };
  auto result = compare_runs(reference, candidate);
  result.reference_path = "reference.h5";
  result.candidate_path = "candidate.h5";
  return to_json(result);
}

TEST(Record, HasTheFixedKeys) {
  const json record = example();
  for (const char* key :
       {"verdict", "exit_code", "coverage", "first_difference", "first_divergence", "culprits", "hypotheses", "probes"})
    EXPECT_TRUE(record.contains(key)) << key;
  EXPECT_EQ(record["verdict"], "diverged");
  EXPECT_EQ(record["exit_code"], 1);
  EXPECT_EQ(record["coverage"]["compared"], record["coverage"]["expected"]);
  const json& first = record["first_divergence"];
  for (const char* key : {"step", "probe", "op", "segment", "outcome", "reason", "rows", "columns", "tolerance",
                          "last_good", "ops_between", "probe_next", "worst", "repro"})
    EXPECT_TRUE(first.contains(key)) << key;
  EXPECT_EQ(first["step"], -1);
  EXPECT_EQ(first["probe"], "weights.blocks.0.adaln_proj");
  EXPECT_EQ(first["op"], "weight");
  EXPECT_EQ(first["segment"], "all");
  EXPECT_EQ(first["columns"], (json{8, 15}));
  EXPECT_TRUE(first["rows"].is_null());
  EXPECT_EQ(first["spoils_first"]["probe"], "blocks.0.adaln.shift_msa");
  ASSERT_EQ(first["worst"].size(), 5U);
  for (const char* key : {"index", "reference", "candidate", "hex"})
    EXPECT_TRUE(first["worst"][0].contains(key)) << key;
  EXPECT_EQ(first["worst"][0]["hex"].size(), 2U);
  EXPECT_EQ(record["culprits"].size(), 4U);
  EXPECT_EQ(record["hypotheses"][0]["kind"], "adaln_padding");
  for (const char* key : {"step", "probe", "segment", "outcome", "rel_l2", "std_ratio", "cosine"})
    EXPECT_TRUE(record["probes"][0].contains(key)) << key;
}

TEST(Record, APassHasNoDivergence) {
  const SampleRun run;
  const json record = to_json(compare_runs(run, run));
  EXPECT_EQ(record["verdict"], "pass");
  EXPECT_EQ(record["exit_code"], 0);
  EXPECT_TRUE(record["first_difference"].is_null());
  EXPECT_TRUE(record["first_divergence"].is_null());
  EXPECT_TRUE(record["culprits"].empty());
}

TEST(Record, NonFiniteFiguresAreNull) {
  CompareResult result;
  ProbeResult probe;
  probe.rel_l2 = std::numeric_limits<double>::infinity();
  probe.std_ratio = std::numeric_limits<double>::quiet_NaN();
  result.probes = {probe};
  const json record = to_json(result);
  EXPECT_TRUE(record["probes"][0]["rel_l2"].is_null());
  EXPECT_TRUE(record["probes"][0]["std_ratio"].is_null());
  EXPECT_NO_THROW((void)record.dump());
}

TEST(Record, TextFromADumpIsEscaped) {
  SampleRun candidate;
  candidate.rename = [](const std::string& probe) { return probe == "condition_proj" ? "evil\x1b[2J\xff" : probe; };
  candidate.facts["torch"] = "2.11\x07";
  SampleRun reference;
  reference.facts["torch"] = "2.11";
  const std::string text = to_json(compare_runs(reference, candidate)).dump(); // throws on bytes that are not UTF-8
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
  EXPECT_NE(text.find("evil"), std::string::npos);
}

TEST(Record, TheManualShowsARealOne) {
  std::ifstream file(std::string(H3DIFF_SOURCE_DIR) + "/docs/record.md");
  const std::string manual((std::istreambuf_iterator<char>(file)), {});
  json brief = example();
  brief["probes"].erase(brief["probes"].begin() + 1, brief["probes"].end());
  brief["culprits"].erase(brief["culprits"].begin() + 1, brief["culprits"].end());
  SCOPED_TRACE("docs/record.md is to show\n" + brief.dump(2));
  const auto begin = manual.find("```json\n"), end = manual.find("\n```", begin + 8);
  ASSERT_NE(begin, std::string::npos);
  const json shown = json::parse(manual.substr(begin + 8, end - begin - 8));
  const json made = example();
  same_keys(shown, made, "record");
  EXPECT_EQ(shown["first_divergence"]["reason"], made["first_divergence"]["reason"]);
  EXPECT_EQ(shown["first_divergence"]["worst"], made["first_divergence"]["worst"]);
  EXPECT_EQ(shown["first_divergence"]["spoils_first"]["reason"], made["first_divergence"]["spoils_first"]["reason"]);
  EXPECT_EQ(shown["hypotheses"], made["hypotheses"]);
  EXPECT_EQ(shown["coverage"], made["coverage"]);
}

} // namespace
} // namespace h3diff::goldens
