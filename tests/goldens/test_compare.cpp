#include "comparing.hpp"
#include <cmath>
#include <limits>

namespace h3diff::goldens {
namespace {

using namespace testing;
using Strings = std::vector<std::string>;

const Where sdpa{0, "blocks.1.attn.sdpa", Segment::video};

TEST(Compare, EqualRunsAreBitwise) {
  const SampleRun run;
  const auto result = compare_runs(run, run);
  EXPECT_EQ(result.verdict, Outcome::bitwise);
  EXPECT_EQ(result.exit_code, ExitCode::ok);
  EXPECT_GT(result.expected, 200);
  EXPECT_EQ(result.compared, result.expected);
  EXPECT_FALSE(result.first_difference);
  EXPECT_FALSE(result.first_divergence);
  EXPECT_TRUE(result.culprits.empty());
  for (const auto& probe : result.probes)
    EXPECT_EQ(probe.evidence, Evidence::digest) << probe.probe;
}

TEST(Compare, RoundingNoiseIsWithinAndStillTheFirstDifference) {
  SampleRun candidate;
  candidate.edit = perturb(downstream(candidate, sdpa), 1e-7F);
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::within);
  EXPECT_EQ(result.exit_code, ExitCode::ok);
  ASSERT_TRUE(result.first_difference);
  EXPECT_EQ(result.first_difference->probe, "blocks.1.attn.sdpa");
  EXPECT_FALSE(result.first_divergence);
}

struct EvidenceCase {
  const char* name;
  Level level;
  int sketch_k;
  Evidence evidence;
};

class OneOp : public ::testing::TestWithParam<EvidenceCase> {};

TEST_P(OneOp, IsNamedAndNothingThatItSpoils) {
  SampleRun reference;
  reference.level = [](const std::string&) { return GetParam().level; };
  reference.sketch_k = GetParam().sketch_k;
  SampleRun candidate = reference;
  // Enough to move the norms: statistics alone must see it too.
  const auto places = downstream(candidate, {0, "blocks.1.attn.sdpa", Segment::video});
  candidate.edit = [places](const Where& where, Values& values) {
    perturb(places, 0.1F)(where, values);
    if (places.contains(where))
      for (float& value : values.data)
        value *= 1.2F;
  };
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(result.verdict, Outcome::diverged);
  EXPECT_EQ(result.exit_code, ExitCode::mismatch);
  ASSERT_TRUE(result.first_divergence);
  const auto& first = *result.first_divergence;
  EXPECT_EQ(first.result.step, 0);
  EXPECT_EQ(first.result.probe, "blocks.1.attn.sdpa");
  EXPECT_EQ(first.result.op, "attention");
  EXPECT_EQ(first.result.segment, Segment::video);
  EXPECT_EQ(first.result.evidence, GetParam().evidence);
  EXPECT_EQ(culprit_names(result), (std::set<std::string>{"blocks.1.attn.sdpa"}));
  EXPECT_EQ(first.last_good, "blocks.1.attn.k_rope");
  EXPECT_TRUE(first.ops_between.empty());
  EXPECT_TRUE(find(result, 0, "blocks.1.out", Segment::video)->spoiled);
  EXPECT_EQ(outcome(result, 0, "blocks.1.out", Segment::audio), Outcome::bitwise);
  EXPECT_EQ(outcome(result, 0, "blocks.2.attn.sdpa", Segment::audio), Outcome::diverged); // attention mixes segments
  EXPECT_FALSE(first.repro.empty());
}

INSTANTIATE_TEST_SUITE_P(Compare, OneOp,
                         ::testing::Values(EvidenceCase{"full", Level::full, 256, Evidence::tensors},
                                           EvidenceCase{"rows", Level::rows, 256, Evidence::sketch},
                                           EvidenceCase{"rows_only", Level::rows, 0, Evidence::tensors},
                                           EvidenceCase{"sketch", Level::stats, 256, Evidence::sketch},
                                           EvidenceCase{"statistics", Level::stats, 0, Evidence::statistics},
                                           EvidenceCase{"digest", Level::digest, 0, Evidence::digest}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(Compare, SketchesOfDifferentSizeAreFolded) {
  SampleRun reference, candidate;
  candidate.sketch_k = 64;
  candidate.edit = perturb(downstream(candidate, sdpa), 0.1F);
  const auto result = compare_runs(reference, candidate);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.probe, "blocks.1.attn.sdpa");
  EXPECT_EQ(result.first_divergence->result.evidence, Evidence::sketch);
  EXPECT_NEAR(result.first_divergence->result.rel_l2, 0.1, 0.05);
}

TEST(Compare, TheSketchSaysWhenItsBoundStraddlesTheLimit) {
  SampleRun reference, candidate;
  reference.compute = candidate.compute = DType::bfloat16;
  const double limit = 8.0 / 256;
  candidate.edit = perturb({{0, "blocks.0.attn.q", Segment::video}}, static_cast<float>(limit));
  const auto result = compare_runs(reference, candidate);
  const auto* row = find(result, 0, "blocks.0.attn.q", Segment::video);
  EXPECT_LT(row->rel_l2 - row->rel_l2_error, limit);
  EXPECT_GT(row->rel_l2 + row->rel_l2_error, limit);
  EXPECT_NE(row->reason.find("straddles"), std::string::npos) << row->reason;
  EXPECT_NE(row->reason.find("--capture full"), std::string::npos);
}

TEST(Compare, OneSegmentOffLeavesTheOthersBitwise) {
  SampleRun candidate;
  candidate.steps = 1;
  SampleRun reference = candidate;
  candidate.edit = perturb({{0, "blocks.0.mlp.fc2", Segment::audio}, {0, "blocks.0.out", Segment::audio}}, 0.2F);
  const auto result = compare_runs(reference, candidate);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.segment, Segment::audio);
  EXPECT_EQ(result.first_divergence->result.probe, "blocks.0.mlp.fc2");
  EXPECT_EQ(outcome(result, 0, "blocks.0.mlp.fc2", Segment::video), Outcome::bitwise);
}

TEST(Compare, TwoIndependentCulpritsAreBothListed) {
  SampleRun candidate;
  candidate.steps = 1;
  SampleRun reference = candidate;
  auto places = downstream(candidate, {0, "blocks.0.adaln.gate_msa", Segment::audio});
  places.merge(downstream(candidate, {0, "token_refiner.blocks.0.attn.q_norm", Segment::text}));
  candidate.edit = perturb(places, 0.2F);
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(culprit_names(result),
            (std::set<std::string>{"token_refiner.blocks.0.attn.q_norm", "blocks.0.adaln.gate_msa"}));
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.probe, "token_refiner.blocks.0.attn.q_norm");
}

TEST(Compare, UnobservedOpsBetweenAreNamed) {
  SampleRun reference;
  reference.steps = 1;
  reference.edit = [](const Where& where, Values& values) {
    const auto& probe = std::get<1>(where);
    values.omit = probe == "blocks.1.attn.q_norm" || probe == "blocks.1.attn.q_rope" || probe == "blocks.1.attn.k_rope";
  };
  SampleRun candidate = reference;
  const auto places = downstream(candidate, sdpa);
  candidate.edit = [places, omit = reference.edit](const Where& where, Values& values) {
    perturb(places, 0.2F)(where, values);
    omit(where, values);
  };
  const auto result = compare_runs(reference, candidate);
  ASSERT_TRUE(result.first_divergence);
  const auto& first = *result.first_divergence;
  EXPECT_EQ(first.result.probe, "blocks.1.attn.sdpa");
  EXPECT_EQ(first.ops_between, (Strings{"blocks.1.attn.q_norm", "blocks.1.attn.q_rope", "blocks.1.attn.k_rope"}));
  EXPECT_EQ(first.probe_next, first.ops_between);
  EXPECT_EQ(first.last_good, "blocks.1.attn.k_norm");
  EXPECT_NE(first.repro.find("blocks.1.attn.q_rope=full"), std::string::npos) << first.repro;
}

TEST(Compare, AWeightIsTheFirstDivergenceAndTellsWhatItSpoils) {
  SampleRun candidate;
  candidate.steps = 1;
  SampleRun reference = candidate;
  candidate.edit = perturb(downstream(candidate, {-1, "weights.blocks.1.mlp.fc1", Segment::all}), 0.05F);
  const auto result = compare_runs(reference, candidate);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.probe, "weights.blocks.1.mlp.fc1");
  EXPECT_EQ(result.first_divergence->result.step, -1);
  ASSERT_TRUE(result.first_divergence->spoils_first);
  EXPECT_EQ(result.first_divergence->spoils_first->probe, "blocks.1.mlp.fc1");
  EXPECT_EQ(culprit_names(result), (std::set<std::string>{"weights.blocks.1.mlp.fc1"}));
}

TEST(Compare, NonFiniteValuesThatTheReferenceLacks) {
  for (const Level level : {Level::stats, Level::full}) {
    SampleRun reference;
    reference.steps = 1;
    reference.level = [level](const std::string&) { return level; };
    SampleRun candidate = reference;
    candidate.edit = [](const Where& where, Values& values) {
      if (where != Where{0, "blocks.2.mlp.fc2", Segment::video})
        return;
      values.at(3, 5) = std::numeric_limits<float>::quiet_NaN();
      values.at(7, 1) = -std::numeric_limits<float>::infinity();
    };
    const auto result = compare_runs(reference, candidate);
    EXPECT_EQ(result.verdict, Outcome::nonfinite);
    EXPECT_EQ(result.exit_code, ExitCode::mismatch);
    ASSERT_TRUE(result.first_divergence);
    EXPECT_NE(result.first_divergence->result.reason.find("1 NaN and 1 Inf"), std::string::npos);
    if (level != Level::full)
      continue;
    ASSERT_GE(result.first_divergence->worst.size(), 2U);
    EXPECT_EQ(result.first_divergence->worst[0].row, 3);
    EXPECT_EQ(result.first_divergence->worst[0].column, 5);
    EXPECT_EQ(result.first_divergence->worst[1].candidate_hex, "0xff800000");
  }
}

TEST(Compare, NonFiniteOnBothSidesIsNotHeldAgainstTheCandidate) {
  SampleRun run;
  run.steps = 1;
  run.edit = [](const Where& where, Values& values) {
    if (where == Where{0, "blocks.2.mlp.fc2", Segment::text})
      values.at(0, 0) = std::numeric_limits<float>::infinity();
  };
  EXPECT_EQ(compare_runs(run, run).verdict, Outcome::bitwise);
}

TEST(Compare, AllZeroOnBothSidesIsMistrusted) {
  SampleRun run;
  run.steps = 1;
  run.edit = [](const Where& where, Values& values) {
    if (std::get<1>(where) == "blocks.1.attn.out_proj")
      std::fill(values.data.begin(), values.data.end(), 0.0F);
  };
  const auto result = compare_runs(run, run);
  EXPECT_EQ(result.verdict, Outcome::mistrusted);
  EXPECT_EQ(result.exit_code, ExitCode::no_evidence);
  EXPECT_EQ(outcome(result, 0, "blocks.1.attn.out_proj", Segment::video), Outcome::mistrusted);
  EXPECT_LT(result.compared, result.expected);
}

TEST(Compare, ConstantWeightsAndSingleTimestepsAreNotMistrusted) {
  SampleRun run;
  run.steps = 1;
  run.edit = [](const Where& where, Values& values) {
    const auto& probe = std::get<1>(where);
    if (probe.starts_with("weights.") || probe == "rope.sin" || probe.starts_with("input."))
      std::fill(values.data.begin(), values.data.end(), 1.0F);
    if (probe == "adaln.t_emb" || probe == "time_embedder.act") {
      values.rows = 1;
      values.data.assign(static_cast<std::size_t>(values.cols), 2.0F);
    }
  };
  EXPECT_EQ(compare_runs(run, run).verdict, Outcome::bitwise);
}

TEST(Compare, ZeroOnOneSideOnlyDiverges) {
  SampleRun candidate;
  candidate.steps = 1;
  SampleRun reference = candidate;
  candidate.edit = [](const Where& where, Values& values) {
    if (std::get<1>(where) == "blocks.1.attn.out_proj")
      std::fill(values.data.begin(), values.data.end(), 0.0F);
  };
  EXPECT_EQ(compare_runs(reference, candidate).verdict, Outcome::diverged);
}

TEST(Compare, AMissingProbeIsNotAPass) {
  SampleRun candidate;
  candidate.edit = [](const Where& where, Values& values) { values.omit = std::get<1>(where) == "blocks.1.norm2"; };
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::missing);
  EXPECT_EQ(result.exit_code, ExitCode::no_evidence);
  EXPECT_EQ(result.compared, result.expected - 2); // two steps
}

TEST(Compare, AProbeThatTheCandidateCannotSeeIsSkippedWithItsReason) {
  SampleRun candidate;
  candidate.edit = [](const Where& where, Values& values) { values.omit = std::get<1>(where).ends_with(".mlp.act"); };
  candidate.unobserved = {{"*.mlp.act", "folded into fc2"}};
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::skipped);
  EXPECT_EQ(result.exit_code, ExitCode::no_evidence);
  EXPECT_EQ(find(result, 0, "blocks.0.mlp.act", Segment::video)->reason, "folded into fc2");

  CompareOptions options;
  options.expect = {"!*.mlp.act"};
  EXPECT_EQ(compare_runs(SampleRun{}, candidate, options).exit_code, ExitCode::ok);
}

TEST(Compare, ExtraProbesAreToldAndPass) {
  SampleRun reference;
  reference.edit = [](const Where& where, Values& values) { values.omit = std::get<1>(where) == "blocks.1.norm2"; };
  const auto result = compare_runs(reference, SampleRun{});
  EXPECT_EQ(result.exit_code, ExitCode::ok);
  EXPECT_EQ(outcome(result, 0, "blocks.1.norm2", Segment::video), Outcome::extra);
}

TEST(Compare, ExpectationsRestrictWhatMustBeThere) {
  SampleRun candidate;
  candidate.edit = [](const Where& where, Values& values) { values.omit = std::get<1>(where) == "blocks.1.norm2"; };
  CompareOptions options;
  options.expect = {"blocks.0.*", "pred.*"};
  auto result = compare_runs(SampleRun{}, candidate, options);
  EXPECT_EQ(result.exit_code, ExitCode::ok);
  EXPECT_LT(result.expected, 100);

  options.expect = {"blocks.1.norm2"};
  result = compare_runs(SampleRun{}, candidate, options);
  EXPECT_EQ(result.exit_code, ExitCode::no_evidence);
  EXPECT_EQ(result.expected, 2);
  EXPECT_EQ(result.compared, 0);

  // A plain name is expected even where the reference lacks it too.
  result = compare_runs(candidate, candidate, options);
  EXPECT_EQ(result.exit_code, ExitCode::no_evidence);
  EXPECT_EQ(result.expected, 2);

  options.expect = {"blocks.77.*"};
  const auto refused = compare(SampleRun{}.write("a.h5"), candidate.write("b.h5"), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::usage);
}

TEST(Compare, AWiderTensorTellsItsEqualPrefix) {
  SampleRun reference;
  reference.shape = tiny_shape(true);
  reference.steps = 1;
  reference.edit = [](const Where& where, Values& values) {
    if (std::get<1>(where) == "weights.adaln_t_table")
      values.resize_columns(8, 0);
  };
  SampleRun candidate = reference;
  candidate.edit = [](const Where&, Values&) {};
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(result.verdict, Outcome::shape);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.probe, "weights.adaln_t_table");
  EXPECT_EQ(result.first_divergence->result.reason, "wider: columns 0-7 are bitwise the reference's, 8-15 are new");
  EXPECT_EQ(result.first_divergence->result.bad_columns, (std::vector<std::array<std::int64_t, 2>>{{8, 15}}));

  const auto other_way = compare_runs(candidate, reference);
  EXPECT_EQ(other_way.first_divergence->result.reason,
            "narrower: columns 0-7 are bitwise the reference's, 8-15 are lacking");
}

TEST(Compare, AWiderActivationTellsItsPrefixFromTensors) {
  SampleRun reference;
  reference.steps = 1;
  reference.level = [](const std::string&) { return Level::full; };
  SampleRun candidate = reference;
  candidate.edit = [](const Where& where, Values& values) {
    if (std::get<1>(where) == "blocks.0.norm1")
      values.resize_columns(36, 1);
    if (std::get<1>(where) == "blocks.1.norm1") {
      values.resize_columns(36, 1);
      values.at(0, 0) += 1;
    }
  };
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(find(result, 0, "blocks.0.norm1", Segment::video)->reason,
            "wider: columns 0-31 are bitwise the reference's, 32-35 are new");
  EXPECT_EQ(find(result, 0, "blocks.1.norm1", Segment::video)->reason, "[20, 36] where the reference has [20, 32]");
}

TEST(Compare, AnotherDtypeUnderTheSameClaim) {
  SampleRun reference;
  reference.compute = DType::bfloat16;
  reference.steps = 1;
  reference.edit = [](const Where& where, Values& values) {
    if (std::get<1>(where) == "video_patch_proj")
      values.dtype = DType::float32;
  };
  SampleRun candidate;
  candidate.compute = DType::bfloat16;
  candidate.steps = 1;
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(result.verdict, Outcome::dtype);
  EXPECT_EQ(result.exit_code, ExitCode::mismatch);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.probe, "video_patch_proj");
  EXPECT_GT(result.first_divergence->result.rel_l2, 1e-4);
  EXPECT_NE(result.first_divergence->result.reason.find("bfloat16 where the reference has float32"), std::string::npos);
}

TEST(Compare, RunsThatClaimDifferentDtypesAreJudgedByDistance) {
  SampleRun reference, candidate;
  candidate.compute = DType::bfloat16;
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(result.verdict, Outcome::within);
  EXPECT_TRUE(has_note(result, "compute_dtype float32 against bfloat16"));
}

TEST(Compare, AnOpThatRunsBeforeItsInputIsReordered) {
  SampleRun candidate;
  candidate.swap_order = {{"blocks.1.attn.q_norm", "blocks.1.attn.q_rope"}};
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::reordered);
  EXPECT_EQ(result.exit_code, ExitCode::mismatch);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.probe, "blocks.1.attn.q_rope");
}

TEST(Compare, IndependentOpsMayTradePlaces) {
  SampleRun candidate;
  candidate.swap_order = {{"blocks.1.attn.q", "blocks.1.attn.k"}};
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::bitwise);
  EXPECT_TRUE(has_note(result, "different orders"));
}

TEST(Compare, AFallbackIsTheVerdictAndTheTensorsAreStillJudged) {
  SampleRun candidate;
  candidate.dispatch[0].fallbacks = 12;
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::dispatch);
  EXPECT_EQ(result.exit_code, ExitCode::mismatch);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.op, "linear");
  EXPECT_EQ(result.compared, result.expected);
  EXPECT_TRUE(has_note(result, "nothing compared is outside"));
}

TEST(Compare, AnotherImplementationThanDeclaredIsDispatch) {
  SampleRun candidate;
  candidate.dispatch[1].implementation = "sdpa_flash";
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::dispatch);
  EXPECT_NE(result.first_divergence->result.reason.find("declares sdpa_math"), std::string::npos);
  // Two profiles that declare different choices are only told.
  candidate.dispatch[1].declared = "sdpa_flash";
  const auto told = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(told.verdict, Outcome::bitwise);
  EXPECT_TRUE(has_note(told, "attention is declared as sdpa_math against sdpa_flash"));
}

TEST(Compare, DriftingInputsStopTheJudging) {
  SampleRun candidate;
  candidate.edit = [all = perturb(downstream(candidate, {0, "input.text", Segment::text}), 0.1F)](
                       const Where& where, Values& values) { all(where, values); };
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::input_drift);
  EXPECT_EQ(result.exit_code, ExitCode::mismatch);
  EXPECT_EQ(result.first_divergence->result.probe, "input.text");
  EXPECT_EQ(find(result, 0, "condition_proj", Segment::text), nullptr);
  EXPECT_NE(find(result, 0, "input.position_ids", Segment::video), nullptr);
  EXPECT_EQ(find(result, 1, "input.text", Segment::text), nullptr);
}

TEST(Compare, AnotherScheduleIsInputDriftAtTheStepWhereItShows) {
  SampleRun candidate;
  candidate.shift = 6;
  candidate.edit = [](const Where& where, Values& values) {
    if (std::get<1>(where) == "input.timestep" && std::get<0>(where) == 1)
      values.data[0] -= 0.05F;
  };
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::input_drift);
  EXPECT_EQ(result.first_divergence->result.step, 1);
  EXPECT_NE(result.first_divergence->result.reason.find("different schedules"), std::string::npos);
  ASSERT_EQ(result.hypotheses.size(), 1U);
  EXPECT_EQ(result.hypotheses[0].kind, "schedule");
  EXPECT_NE(result.hypotheses[0].evidence.find("a shift that is 6 against 12"), std::string::npos)
      << result.hypotheses[0].evidence;
}

TEST(Compare, LatentsOfTheStepBeforeAreJudgedLikeOtherProbes) {
  SampleRun candidate;
  candidate.edit = perturb(downstream(candidate, {0, "latent.video", Segment::video}), 0.2F);
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::diverged);
  EXPECT_EQ(result.first_divergence->result.probe, "latent.video");
  EXPECT_EQ(culprit_names(result), (std::set<std::string>{"latent.video"}));
  EXPECT_TRUE(find(result, 1, "input.video", Segment::video)->spoiled);
}

TEST(Compare, DigestsBoundToOtherVersionsAreStale) {
  SampleRun reference;
  reference.level = [](const std::string&) { return Level::digest; };
  reference.facts["torch"] = "2.11.0";
  SampleRun candidate = reference;
  candidate.edit = perturb(downstream(candidate, sdpa), 1e-3F);
  EXPECT_EQ(compare_runs(reference, candidate).verdict, Outcome::diverged);
  candidate.facts["torch"] = "2.10.0";
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(result.verdict, Outcome::stale);
  EXPECT_EQ(result.exit_code, ExitCode::no_evidence);
  EXPECT_EQ(result.first_difference->probe, "blocks.1.attn.sdpa");
  EXPECT_NE(find(result, 0, "blocks.1.attn.sdpa", Segment::video)->reason.find("torch 2.11.0 against 2.10.0"),
            std::string::npos);
}

TEST(Compare, AnErrorThatHealsWarnsOfAMisalignedProbe) {
  SampleRun candidate;
  candidate.edit = perturb({{0, "blocks.1.attn.v", Segment::video}}, 0.5F);
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::diverged);
  EXPECT_TRUE(has_note(result, "an error that heals"));
}

TEST(Compare, AnUnfinishedCandidateMissesSteps) {
  SampleRun candidate;
  candidate.complete_steps = 1;
  candidate.finish = false;
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::missing);
  EXPECT_EQ(result.exit_code, ExitCode::no_evidence);
  EXPECT_TRUE(has_note(result, "the candidate is unfinished: 1 of 2 steps are complete"));
  EXPECT_EQ(outcome(result, 1, "blocks.0.norm1", Segment::video), Outcome::missing);
}

TEST(Compare, ForeignNamesAreAligned) {
  SampleRun candidate;
  candidate.facts["pipeline"] = "diffusers";
  candidate.rename = [](const std::string& probe) {
    if (probe == "condition_proj")
      return std::string("context_embedder");
    if (probe == "input.text")
      return std::string("encoder_hidden_states");
    return probe;
  };
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::bitwise);
  EXPECT_EQ(result.compared, result.expected);
}

TEST(Compare, NamesThatNobodyKnowsAreExtraOrMissing) {
  SampleRun candidate;
  candidate.rename = [](const std::string& probe) { return probe == "condition_proj" ? "my\x1b[31mprobe" : probe; };
  const auto result = compare_runs(SampleRun{}, candidate);
  EXPECT_EQ(result.verdict, Outcome::missing);
  EXPECT_EQ(outcome(result, 0, "condition_proj", Segment::text), Outcome::missing);
  EXPECT_EQ(outcome(result, 0, "my\x1b[31mprobe", Segment::text), Outcome::extra);
}

TEST(Compare, BandsLocateRowsAndTensorsFindThemExactly) {
  for (const Level level : {Level::stats, Level::full}) {
    SampleRun reference;
    reference.steps = 1;
    reference.level = [level](const std::string&) { return level; };
    SampleRun candidate = reference;
    candidate.edit = [](const Where& where, Values& values) {
      if (where != Where{0, "blocks.2.attn.sdpa", Segment::video})
        return;
      for (std::int64_t r = 15; r < 20; ++r)
        for (std::int64_t c = 0; c < values.cols; ++c)
          values.at(r, c) *= 2;
    };
    const auto result = compare_runs(reference, candidate);
    ASSERT_TRUE(result.first_divergence);
    const auto& first = result.first_divergence->result;
    EXPECT_EQ(first.bad_rows, (std::vector<std::array<std::int64_t, 2>>{{15, 19}})) << first.reason;
    EXPECT_TRUE(first.bad_columns.empty());
    EXPECT_EQ(first.reason.find("about rows") != std::string::npos, level == Level::stats) << first.reason;
  }
}

TEST(Compare, AScaledTensorDivergesByItsStdRatio) {
  SampleRun candidate;
  candidate.compute = DType::bfloat16;
  candidate.sketch_k = 0;
  SampleRun reference = candidate;
  candidate.edit = [](const Where& where, Values& values) {
    if (where == Where{0, "pred.audio", Segment::audio})
      for (float& value : values.data)
        value *= 0.25F;
  };
  const auto result = compare_runs(reference, candidate);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_NEAR(result.first_divergence->result.std_ratio, 0.25, 1e-2);
  EXPECT_EQ(result.first_divergence->result.evidence, Evidence::statistics);
}

TEST(Compare, TheFactorScalesEveryTolerance) {
  SampleRun candidate;
  candidate.steps = 1;
  SampleRun reference = candidate;
  candidate.edit = perturb(downstream(candidate, {0, "pred.video", Segment::video}), 5e-6F);
  EXPECT_EQ(compare_runs(reference, candidate).verdict, Outcome::diverged);
  CompareOptions loose;
  loose.factor = 100;
  EXPECT_EQ(compare_runs(reference, candidate, loose).verdict, Outcome::within);
}

TEST(Compare, StatisticsOfAnAcceleratorAreNotTrustedBelowTheirErrorBound) {
  SampleRun reference;
  reference.steps = 1;
  SampleRun candidate = reference;
  candidate.edit = perturb({{0, "pred.video", Segment::video}}, 1.5e-6F);
  EXPECT_EQ(compare_runs(reference, candidate).verdict, Outcome::diverged); // allowed: 9.5e-7
  candidate.facts["device"] = "NVIDIA H200";
  EXPECT_EQ(compare_runs(reference, candidate).verdict, Outcome::within);
  reference.level = candidate.level = [](const std::string&) { return Level::full; };
  EXPECT_EQ(compare_runs(reference, candidate).verdict, Outcome::diverged); // tensors have no such error
}

TEST(Compare, FactsThatDifferAreNotes) {
  SampleRun candidate;
  candidate.facts["case_digest"] = "bb";
  SampleRun reference;
  reference.facts["case_digest"] = "aa";
  const auto result = compare_runs(reference, candidate);
  EXPECT_EQ(result.verdict, Outcome::bitwise);
  EXPECT_TRUE(has_note(result, "case_digest aa against bb"));
}

TEST(Compare, AShapeThatWouldExhaustMemoryIsRefused) {
  SampleRun reference;
  reference.facts["num_layers"] = std::int64_t{1} << 40;
  const auto refused = compare(reference.write("a.h5"), SampleRun{}.write("b.h5"), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::bad_input);
  EXPECT_NE(refused.error().message.find("a.h5"), std::string::npos) << refused.error().message;
  reference.facts["num_layers"] = std::int64_t{100000};
  EXPECT_FALSE(compare(reference.write("a.h5"), SampleRun{}.write("b.h5"), {}));
}

TEST(Compare, AReferenceThatDoesNotSayItsShapeTakesTheCandidates) {
  SampleRun reference;
  reference.facts["num_layers"] = "";
  EXPECT_EQ(compare_runs(reference, SampleRun{}).verdict, Outcome::bitwise);
}

TEST(Compare, WhereNeitherSaysItsShapeTheNamesOfTheProbesDo) {
  SampleRun reference, candidate;
  for (SampleRun* run : {&reference, &candidate})
    run->facts["num_layers"] = "";
  EXPECT_EQ(compare_runs(reference, candidate).verdict, Outcome::bitwise);
  candidate.edit = perturb(downstream(candidate, sdpa), 0.1F);
  const auto result = compare_runs(reference, candidate);
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->result.probe, "blocks.1.attn.sdpa");
}

TEST(Compare, AReferenceWithoutProbesIsNoEvidence) {
  SampleRun empty;
  empty.edit = [](const Where&, Values& values) { values.omit = true; };
  const auto result = compare_runs(empty, SampleRun{});
  EXPECT_EQ(result.exit_code, ExitCode::no_evidence);
  EXPECT_EQ(result.verdict, Outcome::missing);
}

TEST(Compare, UnreadableFilesAreBadInput) {
  const auto refused = compare(temporary("absent.h5"), SampleRun{}.write("b.h5"), {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().code, ExitCode::ok);
  EXPECT_NE(refused.error().message.find("absent.h5"), std::string::npos);
}

} // namespace
} // namespace h3diff::goldens
