#include "tolerance.hpp"
#include "run_builder.hpp"
#include <gtest/gtest.h>
#include <cmath>

namespace h3diff::goldens {
namespace {

using probes::DType;

class ToleranceTest : public ::testing::Test {
protected:
  probes::Graph graph{testing::tiny_shape()};

  Tolerance of(const std::string& probe, std::int32_t step, DType a, DType b, std::optional<DType> claim = {},
               double factor = 1) {
    probes::IndexRow left, right;
    left.dtype = a;
    right.dtype = b;
    return tolerance({&graph, factor, claim, claim}, graph.find(probe), step, left, right);
  }
};

TEST_F(ToleranceTest, GrowsWithTheBlocksOnTheDataPath) {
  const double u = std::ldexp(1.0, -8);
  EXPECT_DOUBLE_EQ(of("video_patch_proj", 0, DType::bfloat16, DType::bfloat16).allowed, 8 * u);
  EXPECT_DOUBLE_EQ(of("blocks.0.norm1", 0, DType::bfloat16, DType::bfloat16).allowed, 8 * u);
  EXPECT_DOUBLE_EQ(of("blocks.0.out", 0, DType::bfloat16, DType::bfloat16).allowed, 8 * u * std::sqrt(2));
  EXPECT_DOUBLE_EQ(of("blocks.1.attn.q", 0, DType::bfloat16, DType::bfloat16).allowed, 8 * u * std::sqrt(2));
  EXPECT_DOUBLE_EQ(of("pred.video", 0, DType::bfloat16, DType::bfloat16).allowed, 8 * u * std::sqrt(4));
  // After the first step the latents have been through all blocks; the text and the timesteps have not.
  EXPECT_DOUBLE_EQ(of("blocks.1.attn.q", 1, DType::bfloat16, DType::bfloat16).allowed, 8 * u * std::sqrt(5));
  EXPECT_DOUBLE_EQ(of("condition_proj", 1, DType::bfloat16, DType::bfloat16).allowed, 8 * u);
  EXPECT_DOUBLE_EQ(of("blocks.2.adaln.gate_mlp", 1, DType::bfloat16, DType::bfloat16).allowed, 8 * u);
}

TEST_F(ToleranceTest, TakesTheCoarserDtype) {
  const double fine = std::ldexp(8.0, -24), coarse = std::ldexp(8.0, -8);
  EXPECT_DOUBLE_EQ(of("blocks.0.norm1", 0, DType::float32, DType::float32).allowed, fine);
  EXPECT_DOUBLE_EQ(of("blocks.0.norm1", 0, DType::float32, DType::bfloat16).allowed, coarse);
  EXPECT_DOUBLE_EQ(of("blocks.0.norm1", 0, DType::float32, DType::float32, DType::bfloat16).allowed, coarse);
}

TEST_F(ToleranceTest, WeightsAndInputsAreRoundedOnceAndDoNotHideBehindTheClaim) {
  EXPECT_DOUBLE_EQ(of("weights.blocks.0.norm1", -1, DType::float32, DType::float32, DType::bfloat16).allowed,
                   std::ldexp(1.0, -24));
  EXPECT_DOUBLE_EQ(of("input.text", 0, DType::float32, DType::bfloat16).allowed, std::ldexp(1.0, -8));
  EXPECT_EQ(of("input.token_tags", 0, DType::int32, DType::int32, DType::bfloat16).allowed, 0);
  // From the second step on the latents are an activation.
  EXPECT_DOUBLE_EQ(of("input.video", 1, DType::float32, DType::float32).allowed, std::ldexp(8.0, -24) * 2);
}

TEST_F(ToleranceTest, PrintsArithmeticThatGivesTheNumber) {
  const auto plain = of("blocks.2.mlp.fc2", 0, DType::bfloat16, DType::bfloat16);
  EXPECT_EQ(plain.arithmetic, "8 x 2^-8 x sqrt(1 + 2) = 0.0541 (bfloat16, 2 blocks passed)");
  EXPECT_NEAR(plain.allowed, 0.0541, 5e-5);
  const auto scaled = of("blocks.1.out", 0, DType::bfloat16, DType::bfloat16, {}, 0.5);
  EXPECT_EQ(scaled.arithmetic, "0.5 x 8 x 2^-8 x sqrt(1 + 2) = 0.0271 (bfloat16, 2 blocks passed)");
  EXPECT_NEAR(scaled.allowed, 0.0271, 5e-5);
  EXPECT_EQ(of("input.token_tags", 0, DType::int32, DType::int32).arithmetic, "0 (int32 is exact)");
}

} // namespace
} // namespace h3diff::goldens
