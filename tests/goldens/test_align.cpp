#include "align.hpp"
#include "run_builder.hpp"
#include <gtest/gtest.h>

namespace h3diff::goldens {
namespace {

using namespace testing;

TEST(CanonicalName, AsksTheAliasTablesAndKeepsWhatIsKnown) {
  const probes::Graph graph(tiny_shape());
  EXPECT_EQ(canonical_name(graph, "blocks.1.norm1", "diffusers"), "blocks.1.norm1");
  EXPECT_EQ(canonical_name(graph, "context_embedder", "diffusers"), "condition_proj");
  EXPECT_EQ(canonical_name(graph, "context_embedder", ""), "condition_proj"); // any table may know it
  EXPECT_EQ(canonical_name(graph, "nobody.knows", "diffusers"), "nobody.knows");
  // A name that maps to a probe of a larger model is not ours.
  EXPECT_EQ(canonical_name(graph, "token_refiner.refiner_blocks.9.norm1", "diffusers"),
            "token_refiner.refiner_blocks.9.norm1");
}

TEST(Align, FollowsTheExecutionOrder) {
  const SampleRun run;
  auto left = probes::DumpReader::open(run.write("a.h5")), right = probes::DumpReader::open(run.write("b.h5"));
  ASSERT_TRUE(left && right);
  const probes::Graph graph(run.shape);
  const auto alignment = align(*left, *right, graph);
  ASSERT_FALSE(alignment.pairs.empty());
  EXPECT_EQ(alignment.pairs.front().step, -1);
  EXPECT_EQ(alignment.pairs.back().probe, "latent.audio");
  for (std::size_t i = 1; i < alignment.pairs.size(); ++i) {
    const auto &before = alignment.pairs[i - 1], &after = alignment.pairs[i];
    EXPECT_TRUE(before.step < after.step || graph.position(before.probe) < graph.position(after.probe));
  }
  for (const auto& pair : alignment.pairs)
    for (const auto& segment : pair.segments)
      EXPECT_TRUE(segment.reference && segment.candidate) << pair.probe;
}

TEST(Align, FusedOpsShareAProbeAndTheLastCounts) {
  SampleRun fused;
  fused.steps = 1;
  fused.facts["pipeline"] = "diffusers";
  // diffusers' out_proj and the dropout after it are one probe of ours.
  fused.rename = [](const std::string& probe) {
    if (probe == "token_refiner.blocks.0.attn.sdpa")
      return std::string("token_refiner.refiner_blocks.0.attn.to_out.0");
    if (probe == "token_refiner.blocks.0.attn.out_proj")
      return std::string("token_refiner.refiner_blocks.0.attn.to_out.1");
    return probe;
  };
  SampleRun plain;
  plain.steps = 1;
  auto left = probes::DumpReader::open(plain.write("a.h5")), right = probes::DumpReader::open(fused.write("b.h5"));
  ASSERT_TRUE(left && right);
  const auto alignment = align(*left, *right, probes::Graph(plain.shape));
  for (const auto& pair : alignment.pairs)
    if (pair.probe == "token_refiner.blocks.0.attn.out_proj") {
      ASSERT_EQ(pair.segments.size(), 2U);
      EXPECT_EQ(pair.segments[0].candidate->probe, "token_refiner.refiner_blocks.0.attn.to_out.1");
      EXPECT_EQ(pair.segments[0].candidate->digest, pair.segments[0].reference->digest);
    }
  ASSERT_FALSE(alignment.notes.empty());
  EXPECT_NE(alignment.notes[0].find("fused ops"), std::string::npos);
}

} // namespace
} // namespace h3diff::goldens
