#include "h3diff/cases/philox.hpp"
#include "h3diff/cases/schedule.hpp"
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace h3diff::cases {
namespace {

// Known answers of Random123's kat_vectors.
TEST(Philox, known_answers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(TensorStream, batches_are_the_single_values) {
  const TensorStream stream(5, "x");
  std::vector<float> batch(1000);
  stream.normals(0xfffffe00, batch); // over the boundary of the low word
  for (std::size_t i = 0; i < batch.size(); ++i)
    ASSERT_EQ(batch[i], stream.normal(0xfffffe00 + i));
}

TEST(TensorStream, seed_and_name_matter) {
  EXPECT_NE(TensorStream(1, "x").normal(0), TensorStream(2, "x").normal(0));
  EXPECT_NE(TensorStream(1, "x").normal(0), TensorStream(1, "y").normal(0));
  EXPECT_EQ(TensorStream(1, "x").normal(7), TensorStream(1, "x").normal(7));
}

TEST(TensorStream, uniforms_fill_the_unit_interval) {
  const TensorStream stream(5, "x");
  double sum = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const float u = stream.uniform(i);
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += static_cast<double>(u);
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
}

TEST(Schedule, ends_and_shift) {
  const Schedule one = make_schedule(1, 12);
  EXPECT_EQ(one.sigmas, (std::vector<float>{1, 0}));
  EXPECT_EQ(one.timesteps, (std::vector<float>{0}));
  const Schedule four = make_schedule(4, 3);
  EXPECT_EQ(four.sigmas, (std::vector<float>{1, 0.9f, 0.75f, 0.5f, 0}));
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(four.timesteps[i], 1.0f - four.sigmas[i]);
}

TEST(Schedule, equal_neighbours_collapse) {
  const Schedule schedule = make_schedule(100, 1e9);
  EXPECT_LT(schedule.timesteps.size(), 100u);
  for (std::size_t i = 0; i + 1 < schedule.sigmas.size(); ++i)
    EXPECT_GT(schedule.sigmas[i], schedule.sigmas[i + 1]);
}

} // namespace
} // namespace h3diff::cases
