// The registry refuses what it cannot run, by name, and counts what ran.
#include "dispatcher.hpp"
#include <ATen/ops/linspace.h>
#include <algorithm>
#include <gtest/gtest.h>

namespace h3diff::harness {
namespace {

bool never(const ops::Context&) { return false; }
bool always(const ops::Context&) { return true; }

int one() { return 1; }
int two() { return 2; }
using Number = int (*)();

const std::vector<ops::Implementation<Number>>& numbers() {
  static const std::vector<ops::Implementation<Number>> all = {{"fast", {{"compute capability 9.0", never}}, one},
                                                               {"plain", {{"any device", always}}, two}};
  return all;
}

cases::Profile diffusers() { return *cases::load_profile("diffusers-f32"); }

TEST(Dispatch, AnUnknownImplementationIsAUsageErrorThatListsTheKnown) {
  const auto op = ops::select<Number>("linear", numbers(), "magic", {});
  ASSERT_FALSE(op);
  EXPECT_EQ(op.error().code, ExitCode::usage);
  EXPECT_EQ(op.error().message, "op linear has no implementation 'magic' (known: fast, plain)");
}

TEST(Dispatch, ABrokenConstraintNamesOpImplementationAndConstraint) {
  const auto op = ops::select<Number>("linear", numbers(), "fast", {});
  ASSERT_FALSE(op);
  EXPECT_EQ(op.error().code, ExitCode::environment);
  for (const char* part : {"op linear", "implementation fast", "compute capability 9.0"})
    EXPECT_NE(op.error().message.find(part), std::string::npos) << op.error().message;
}

TEST(Dispatch, AFallbackHappensOnlyWhereDeclaredAndIsCounted) {
  auto op = ops::select<Number>("linear", numbers(), "fast|plain", {});
  ASSERT_TRUE(op);
  EXPECT_EQ((*op)(), 2);
  EXPECT_EQ((*op)(), 2);
  EXPECT_EQ(op->row().implementation, "plain");
  EXPECT_EQ(op->row().declared, "fast");
  EXPECT_EQ(op->row().calls, 2);
  EXPECT_EQ(op->row().fallbacks, 2);
}

TEST(Dispatch, AFirstChoiceThatHoldsIsNoFallback) {
  auto op = ops::select<Number>("linear", numbers(), "plain", {});
  ASSERT_TRUE(op);
  EXPECT_EQ((*op)(), 2);
  EXPECT_EQ(op->row().calls, 1);
  EXPECT_EQ(op->row().fallbacks, 0);
}

TEST(Dispatch, AProfileWithoutANeededOpIsRefused) {
  cases::Profile profile = diffusers();
  profile.ops.erase("rope");
  const auto dispatcher = Dispatcher::build(profile, {});
  ASSERT_FALSE(dispatcher);
  EXPECT_EQ(dispatcher.error().code, ExitCode::usage);
  EXPECT_NE(dispatcher.error().message.find("rope"), std::string::npos);
}

TEST(Dispatch, AProfileWithAnOpThatIsNotThereIsRefused) {
  cases::Profile profile = diffusers();
  profile.ops["convolution"] = "torch";
  const auto dispatcher = Dispatcher::build(profile, {});
  ASSERT_FALSE(dispatcher);
  EXPECT_EQ(dispatcher.error().code, ExitCode::usage);
  EXPECT_NE(dispatcher.error().message.find("convolution"), std::string::npos);
}

TEST(Dispatch, AComputeDtypeThatNoImplementationTakesIsRefused) {
  ops::Context context;
  context.compute_dtype = probes::DType::int8;
  const auto dispatcher = Dispatcher::build(diffusers(), context);
  ASSERT_FALSE(dispatcher);
  EXPECT_EQ(dispatcher.error().code, ExitCode::environment);
  EXPECT_NE(dispatcher.error().message.find("compute dtype float32 or bfloat16"), std::string::npos);
}

TEST(Dispatch, OnlyTheOpsOfTheAdalnFormAreInTheTable) {
  ops::Context curve;
  curve.shape.curve_grid = 1025;
  for (const auto& [context, present, absent] :
       {std::tuple{ops::Context{}, "time_embed", "adaln_curve"}, std::tuple{curve, "adaln_curve", "time_embed"}}) {
    const auto dispatcher = Dispatcher::build(diffusers(), context);
    ASSERT_TRUE(dispatcher) << dispatcher.error().message;
    std::vector<std::string> names;
    for (const auto& row : dispatcher->table())
      names.push_back(row.op);
    EXPECT_NE(std::find(names.begin(), names.end(), present), names.end());
    EXPECT_EQ(std::find(names.begin(), names.end(), absent), names.end());
  }
}

// x + (sigma_next - sigma) * -v in exact arithmetic; the float32 steps may round, not more.
TEST(Euler, AgreesWithTheClosedForm) {
  auto dispatcher = Dispatcher::build(diffusers(), {});
  ASSERT_TRUE(dispatcher);
  for (const float sigma : {1.0F, 0.9F, 0.5F, 0.3F, 0.01F})
    for (const float next : {0.0F, 0.5F * sigma, 0.99F * sigma}) {
      const auto velocity = at::linspace(-3, 2, 12).view({3, 4});
      const auto sample = at::linspace(1.5, -1, 12).view({3, 4});
      const auto stepped = dispatcher->euler(velocity, sample, 1 - sigma, sigma, next);
      const auto expected = sample.to(at::kDouble) + (double{sigma} - double{next}) * velocity.to(at::kDouble);
      EXPECT_LT((stepped.to(at::kDouble) - expected).abs().max().item<double>(), 2e-6) << sigma << " to " << next;
    }
}

} // namespace
} // namespace h3diff::harness
