#include "localise.hpp"
#include "run_builder.hpp"
#include <gtest/gtest.h>
#include <algorithm>

namespace h3diff::goldens {
namespace {

using probes::Segment;

class LineageTest : public ::testing::Test {
protected:
  probes::Graph graph{testing::tiny_shape()};
  std::set<std::string> seen;

  std::set<std::string> inputs_of(const std::string& probe, Segment segment, std::int32_t step = 0) {
    const auto found = lineage(graph, {step, graph.position(probe), segment}, [this](const Place& place) {
      return seen.empty() || seen.contains(graph.probes()[static_cast<std::size_t>(place.probe)].name);
    });
    unobserved.clear();
    for (const int at : found.unobserved)
      unobserved.push_back(graph.probes()[static_cast<std::size_t>(at)].name);
    std::set<std::string> names;
    for (const auto& place : found.observed)
      names.insert(graph.probes()[static_cast<std::size_t>(place.probe)].name + "/" +
                   std::string(probes::name(place.segment)) + "@" + std::to_string(place.step));
    return names;
  }
  std::vector<std::string> unobserved;
};

TEST_F(LineageTest, PackingReadsEachSegmentFromItsOwnSource) {
  EXPECT_EQ(inputs_of("packed", Segment::audio), (std::set<std::string>{"audio_patch_proj/audio@0"}));
  EXPECT_EQ(inputs_of("packed", Segment::vision), (std::set<std::string>{"token_refiner.final_norm/vision@0"}));
}

TEST_F(LineageTest, ModulationComesByTag) {
  const auto names = inputs_of("blocks.0.residual_msa", Segment::cond_video);
  EXPECT_TRUE(names.contains("blocks.0.adaln.gate_msa/video@0"));
  EXPECT_TRUE(names.contains("packed/cond_video@0"));
  EXPECT_FALSE(names.contains("packed/video@0"));
}

TEST_F(LineageTest, AttentionReadsEverySegment) {
  const auto names = inputs_of("blocks.0.attn.sdpa", Segment::text);
  for (const char* name : {"blocks.0.attn.v/text@0", "blocks.0.attn.v/video@0", "blocks.0.attn.k_rope/audio@0"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST_F(LineageTest, LatentsCrossTheStep) {
  EXPECT_EQ(inputs_of("input.video", Segment::video, 2), (std::set<std::string>{"latent.video/video@1"}));
  EXPECT_TRUE(inputs_of("input.video", Segment::video, 0).empty());
}

TEST_F(LineageTest, SkipsWhatNobodySaw) {
  seen = {"blocks.0.out", "blocks.1.out", "weights.blocks.1.mlp.fc1"};
  const auto names = inputs_of("blocks.1.out", Segment::audio);
  EXPECT_TRUE(names.contains("blocks.0.out/audio@0"));
  EXPECT_TRUE(names.contains("blocks.0.out/video@0")); // through attention
  EXPECT_TRUE(names.contains("weights.blocks.1.mlp.fc1/all@-1"));
  EXPECT_NE(std::find(unobserved.begin(), unobserved.end(), "blocks.1.mlp.fc2"), unobserved.end());
  EXPECT_EQ(std::find(unobserved.begin(), unobserved.end(), "blocks.0.mlp.fc2"), unobserved.end());
}

} // namespace
} // namespace h3diff::goldens
