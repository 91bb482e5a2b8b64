// The toy runtime of docs/instrumenting-your-runtime.md is run; its stream becomes a dump, and the dump shows its bug.
#include "h3diff/probes/stream.hpp"
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

namespace {

using namespace h3diff::probes;
namespace fs = std::filesystem;

class Toy : public testing::Test {
protected:
  Toy() {
    std::string pattern = (fs::temp_directory_path() / "h3diff-toy-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Toy() override { fs::remove_all(folder_); }

  std::string dump(const std::string& name, const std::string& arguments) {
    const std::string stream = (folder_ / (name + ".h3stream")).string(), out = (folder_ / (name + ".h5")).string();
    EXPECT_EQ(std::system(("'" TOY_RUNTIME "' '" + stream + "' " + arguments).c_str()), 0);
    const auto made = stream_to_dump(stream, out);
    EXPECT_TRUE(made) << made.error().message;
    EXPECT_TRUE(made->notes.empty());
    return out;
  }

  fs::path folder_;
};

TEST_F(Toy, StreamBecomesADump) {
  const auto dump = DumpReader::open(this->dump("a", ""));
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_TRUE(dump->finished());
  EXPECT_EQ(dump->fact("producer"), "toy_runtime 1");
  EXPECT_EQ(dump->fact("steps_planned"), "3");
  ASSERT_EQ(dump->steps().size(), 3u);
  EXPECT_EQ(dump->steps()[1].sigma_video, 0.75);
  EXPECT_EQ(dump->steps()[2].sigma_video_next, 0.0);
  ASSERT_EQ(dump->dispatch().size(), 1u);
  EXPECT_EQ(dump->dispatch()[0].calls, 3);
  ASSERT_EQ(dump->unobserved().size(), 1u);
  EXPECT_EQ(dump->columns("weights.blocks.0.mlp.fc2").size(), 24u);
  EXPECT_EQ(dump->index().size(), 6u + 3 * 12 * 3); // weights; steps x probes x segments
  const IndexRow& first = dump->index()[6];
  EXPECT_EQ(first.probe, "blocks.0.norm1");
  EXPECT_EQ(first.segment, Segment::text);
  EXPECT_EQ(first.rows, 3);
  EXPECT_EQ(first.cols, 16);
  EXPECT_EQ(first.dtype, DType::bfloat16);
  EXPECT_NEAR(first.statistics.l2, 3.2, 3); // a norm of 48 values of about 0.25: something was computed
  EXPECT_GT(first.statistics.std, 0.05);
}

TEST_F(Toy, ItsBugIsTheFirstDifference) {
  const auto good = DumpReader::open(dump("good", "")), bad = DumpReader::open(dump("bad", "bug"));
  ASSERT_TRUE(good && bad);
  ASSERT_EQ(good->index().size(), bad->index().size());
  std::size_t i = 0;
  while (i < good->index().size() && good->index()[i].digest == bad->index()[i].digest)
    ++i;
  ASSERT_LT(i, good->index().size());
  EXPECT_EQ(good->index()[i].step, 1);
  EXPECT_EQ(good->index()[i].probe, "blocks.0.attn.q");
  EXPECT_EQ(good->index()[i].segment, Segment::text);
  const auto a = good->sketch(good->index()[i]), b = bad->sketch(bad->index()[i]);
  ASSERT_TRUE(a && b);
  // Head 1 is negated: the difference is twice its half of q.
  const double l2 = good->index()[i].statistics.l2;
  EXPECT_EQ(l2, bad->index()[i].statistics.l2);
  EXPECT_NEAR(std::sqrt(sketch_distance(*a, *b).squared), 2 * l2 * std::sqrt(0.5), l2);
}

} // namespace
