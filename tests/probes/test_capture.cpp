#include "h3diff/probes/capture.hpp"

#include <gtest/gtest.h>

namespace h3diff::probes {
namespace {

TEST(Capture, DefaultsToStatistics) {
  const CaptureSpec spec;
  EXPECT_EQ(spec.level("blocks.0.out"), Level::stats);
  EXPECT_EQ(spec.budget_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(spec.sample_rows, 64);
}

TEST(Capture, LaterItemsOverrideEarlierOnes) {
  const auto spec =
      CaptureSpec::parse("digest,blocks.*=full,blocks.0.*=off, pred.* = rows ,budget=4GiB,rows=8,sketch=128");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->level("packed"), Level::digest);
  EXPECT_EQ(spec->level("blocks.1.out"), Level::full);
  EXPECT_EQ(spec->level("blocks.0.out"), Level::off);
  EXPECT_EQ(spec->level("pred.video"), Level::rows);
  EXPECT_EQ(spec->budget_bytes, std::int64_t{4} << 30);
  EXPECT_EQ(spec->sample_rows, 8);
  EXPECT_EQ(spec->sketch(-1, 20), 128);
  EXPECT_EQ(spec->sketch(7, 20), 128);
  const auto overridden = CaptureSpec::parse("blocks.*=full,stats,rows=3,rows=4");
  EXPECT_EQ(overridden->level("blocks.1.out"), Level::stats);
  EXPECT_EQ(overridden->sample_rows, 4);
  EXPECT_EQ(overridden->text, "blocks.*=full,stats,rows=3,rows=4");
}

TEST(Capture, RowsIsALevelAndAKey) {
  EXPECT_EQ(CaptureSpec::parse("rows")->level("packed"), Level::rows);
  EXPECT_EQ(CaptureSpec::parse("rows=5")->level("packed"), Level::stats);
  EXPECT_EQ(CaptureSpec::parse("budget=0")->budget_bytes, 0);
  EXPECT_EQ(CaptureSpec::parse("budget=3KiB")->budget_bytes, 3072);
  EXPECT_EQ(CaptureSpec::parse("budget=3MiB")->budget_bytes, 3145728);
  EXPECT_EQ(CaptureSpec::parse("budget=77")->budget_bytes, 77);
}

TEST(Capture, AutomaticSketchIsWideWhereItDecides) {
  const CaptureSpec spec;
  EXPECT_EQ(spec.sketch(-1, 20), 256);
  EXPECT_EQ(spec.sketch(0, 20), 256);
  EXPECT_EQ(spec.sketch(1, 20), 256);
  EXPECT_EQ(spec.sketch(2, 20), 64);
  EXPECT_EQ(spec.sketch(18, 20), 64);
  EXPECT_EQ(spec.sketch(19, 20), 256);
  EXPECT_EQ(CaptureSpec::parse("sketch=64,sketch=auto")->sketch(0, 20), 256);
}

TEST(Capture, WrongItemsAreQuoted) {
  for (const char* item : {"", "everything", "blocks.*=most", "=full", "budget=lots", "budget=-1",
                           "budget=9999999999GiB", "budget=1GB", "rows=0", "rows=x", "sketch=100", "sketch=0"}) {
    const auto spec = CaptureSpec::parse(std::string("stats,") + item);
    ASSERT_FALSE(spec) << item;
    EXPECT_EQ(spec.error().code, ExitCode::usage);
    EXPECT_NE(spec.error().message.find("'" + std::string(item) + "'"), std::string::npos) << spec.error().message;
  }
}

TEST(Capture, APatternMustMatchAProbe) {
  ModelShape shape;
  shape.num_layers = 2;
  const Graph graph(shape);
  EXPECT_TRUE(CaptureSpec::parse("off,blocks.1.*=full,pred.video=rows")->check(graph));
  const auto missing = CaptureSpec::parse("stats,blocks.2.*=full")->check(graph);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ExitCode::usage);
  EXPECT_NE(missing.error().message.find("blocks.2.*=full"), std::string::npos);
}

} // namespace
} // namespace h3diff::probes
