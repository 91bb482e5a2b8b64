#include "comparing.hpp"

namespace h3diff::goldens {
namespace {

using namespace testing;

const Hypothesis* of_kind(const CompareResult& result, const std::string& kind) {
  for (const auto& hypothesis : result.hypotheses)
    if (hypothesis.kind == kind)
      return &hypothesis;
  return nullptr;
}

void fill_tail(Values& values, std::int64_t from, float scale) {
  for (std::int64_t r = 0; r < values.rows; ++r)
    for (std::int64_t c = from; c < values.cols; ++c) {
      float& value = values.at(r, c);
      value = scale == 0 ? 0 : scale * static_cast<float>((r * 31 + c * 17) % 101 - 50) / 50;
    }
}

bool is_projection(const Where& where) {
  const auto& probe = std::get<1>(where);
  return probe.starts_with("weights.") && probe.ends_with("adaln_proj");
}

SampleRun padded(float reference_scale) {
  SampleRun run;
  run.shape = tiny_shape(true);
  run.steps = 1;
  run.edit = [reference_scale](const Where& where, Values& values) {
    if (is_projection(where))
      fill_tail(values, 8, reference_scale);
  };
  return run;
}

TEST(AdalnPadding, NamesTheColumnsWithNumbersAndACommand) {
  SampleRun candidate = padded(0);
  const auto spoiled = downstream(candidate, {-1, "weights.blocks.0.adaln_proj", Segment::all});
  candidate.edit = [spoiled](const Where& where, Values& values) {
    if (is_projection(where))
      fill_tail(values, 8, 10.44F);
    else
      perturb(spoiled, 0.5F)(where, values);
  };
  const auto result = compare_runs(padded(0), candidate);
  EXPECT_EQ(result.verdict, Outcome::diverged);
  ASSERT_TRUE(result.first_divergence);
  const auto& first = *result.first_divergence;
  EXPECT_EQ(first.result.probe, "weights.blocks.0.adaln_proj");
  EXPECT_EQ(first.result.bad_columns, (std::vector<std::array<std::int64_t, 2>>{{8, 15}}));
  EXPECT_NE(first.result.reason.find("absmax 10.44 there"), std::string::npos) << first.result.reason;
  EXPECT_NE(first.result.reason.find("in columns 0-7, which are bitwise the reference's"), std::string::npos);
  ASSERT_TRUE(first.spoils_first);
  EXPECT_EQ(first.spoils_first->probe, "blocks.0.adaln.shift_msa");
  EXPECT_EQ(culprit_names(result),
            (std::set<std::string>{"weights.blocks.0.adaln_proj", "weights.blocks.1.adaln_proj",
                                   "weights.blocks.2.adaln_proj", "weights.final_layer.adaln_proj"}));
  const auto* padding = of_kind(result, "adaln_padding");
  ASSERT_NE(padding, nullptr);
  EXPECT_NE(padding->evidence.find("4 of 4 AdaLN projections"), std::string::npos) << padding->evidence;
  EXPECT_EQ(padding->confirm, "h3diff run bundle --profile diffusers-f32 --zero-columns adaln_proj:8-16 -o fixed.h5");
}

TEST(AdalnPadding, SeesPaddingThatIsSmallBesideTheWholeWeight) {
  SampleRun candidate = padded(0);
  candidate.edit = [](const Where& where, Values& values) {
    if (is_projection(where))
      fill_tail(values, 8, 1e-9F);
  };
  const auto result = compare_runs(padded(0), candidate);
  EXPECT_EQ(result.verdict, Outcome::diverged);
  EXPECT_EQ(result.first_divergence->result.bad_columns, (std::vector<std::array<std::int64_t, 2>>{{8, 15}}));
}

TEST(AdalnPadding, IsNotSaidOfColumnsInTheMiddleOrOfZeros) {
  SampleRun candidate = padded(1);
  candidate.edit = [](const Where& where, Values& values) {
    if (!is_projection(where))
      return;
    fill_tail(values, 8, 1);
    for (std::int64_t r = 0; r < values.rows; ++r)
      values.at(r, 3) *= 2;
  };
  auto result = compare_runs(padded(1), candidate);
  EXPECT_EQ(result.verdict, Outcome::diverged);
  EXPECT_EQ(of_kind(result, "adaln_padding"), nullptr);

  result = compare_runs(padded(1), padded(0)); // zeroed in the candidate
  EXPECT_EQ(result.verdict, Outcome::diverged);
  EXPECT_EQ(of_kind(result, "adaln_padding"), nullptr);
}

TEST(AdalnPadding, WiderProjectionsWithUnloadedColumns) {
  SampleRun reference = padded(0);
  reference.edit = [](const Where& where, Values& values) {
    if (is_projection(where))
      values.resize_columns(8, 0);
  };
  SampleRun candidate = padded(10);
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(result.verdict, Outcome::shape);
  EXPECT_EQ(result.first_divergence->result.bad_columns, (std::vector<std::array<std::int64_t, 2>>{{8, 15}}));
  ASSERT_NE(of_kind(result, "adaln_padding"), nullptr);
  EXPECT_EQ(of_kind(compare_runs(reference, padded(0)), "adaln_padding"), nullptr); // zero padding is harmless
}

TEST(SwigluSwap, IsSeenInTheHalvesOfFc1) {
  SampleRun candidate;
  candidate.steps = 1;
  SampleRun reference = candidate;
  candidate.edit = [](const Where& where, Values& values) {
    if (std::get<1>(where) != "weights.blocks.0.mlp.fc1")
      return;
    std::rotate(values.data.begin(), values.data.begin() + static_cast<std::ptrdiff_t>(values.data.size() / 2),
                values.data.end());
  };
  const auto result = compare_runs(reference, candidate);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.probe, "weights.blocks.0.mlp.fc1");
  ASSERT_NE(of_kind(result, "swiglu_swap"), nullptr);

  candidate.edit = perturb({{-1, "weights.blocks.0.mlp.fc1", Segment::all}}, 0.3F);
  EXPECT_EQ(of_kind(compare_runs(reference, candidate), "swiglu_swap"), nullptr);
}

TEST(BackendFallback, IsReadOffTheDispatchTable) {
  SampleRun candidate;
  candidate.dispatch.push_back({"int8_linear", "eager", "cuda", 40, 40});
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::dispatch);
  EXPECT_EQ(result.first_divergence->result.op, "int8_linear");
  ASSERT_NE(of_kind(result, "backend_fallback"), nullptr);
  EXPECT_EQ(of_kind(result, "backend_fallback")->evidence,
            "int8_linear: 40 of 40 calls fell back to eager, declared is cuda");
}

TEST(Commands, HoldNoTextThatAShellWouldRun) {
  SampleRun candidate = padded(10);
  candidate.facts["bundle"] = "x; rm -rf $HOME";
  candidate.facts["case"] = "`id`";
  candidate.facts["profile"] = "$(id)";
  const auto result = compare_runs(padded(0), candidate);
  ASSERT_NE(of_kind(result, "adaln_padding"), nullptr);
  EXPECT_EQ(of_kind(result, "adaln_padding")->confirm,
            "h3diff run BUNDLE --profile PROFILE --zero-columns adaln_proj:8-16 -o fixed.h5");
}

} // namespace
} // namespace h3diff::goldens
