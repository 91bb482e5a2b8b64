#include "fixtures.hpp"
#include "h3diff/probes/graph.hpp"
#include <cstring>

namespace h3diff::cases::test {
namespace {

std::vector<std::byte> values(const CaseSpec& spec, const SyntheticWeight& weight) {
  std::int64_t count = 1;
  for (const std::int64_t size : weight.shape)
    count *= size;
  std::vector<std::byte> out(static_cast<std::size_t>(count) * probes::item_size(weight.dtype));
  fill_weight(spec, weight, 0, count, out.data());
  return out;
}

const SyntheticWeight& named(const std::vector<SyntheticWeight>& list, const std::string& name) {
  for (const SyntheticWeight& weight : list)
    if (weight.name == name)
      return weight;
  throw std::runtime_error(name);
}

std::string probe_name(std::string name) {
  for (const std::string part : {".weight", ".linear"})
    if (const auto at = name.find(part); at != std::string::npos)
      name.erase(at, part.size());
  return "weights." + name;
}

TEST(WeightList, is_the_graphs_list_in_both_forms) {
  for (const bool curve : {false, true}) {
    CaseSpec spec = little_case();
    if (curve)
      spec.shape.curve_grid = 33;
    const probes::Graph graph(spec.shape);
    std::vector<std::string> expected, got;
    std::vector<std::int64_t> expected_sizes, got_sizes;
    for (const probes::ProbeInfo& probe : graph.probes())
      if (probe.weight) {
        expected.push_back(probe.name);
        expected_sizes.push_back(probe.rows * probe.cols);
      }
    for (const SyntheticWeight& weight : weight_list(spec)) {
      got.push_back(probe_name(weight.name));
      std::int64_t count = 1;
      for (const std::int64_t size : weight.shape)
        count *= size;
      got_sizes.push_back(count);
    }
    EXPECT_EQ(got, expected);
    EXPECT_EQ(got_sizes, expected_sizes);
  }
}

TEST(WeightList, islands_are_float32) {
  CaseSpec spec = little_case();
  for (const SyntheticWeight& weight : weight_list(spec)) {
    bool island = false;
    for (const char* part : {"_patch_proj", "time_embedder", "video_out", "audio_out", "inv_freq"})
      island |= weight.name.find(part) != std::string::npos;
    EXPECT_EQ(weight.dtype, island ? probes::DType::float32 : probes::DType::bfloat16) << weight.name;
  }
  spec.shape.curve_grid = 33;
  for (const SyntheticWeight& weight : weight_list(spec))
    if (weight.name.find("adaln") != std::string::npos) {
      EXPECT_EQ(weight.dtype, probes::DType::float32) << weight.name;
    }
}

TEST(FillWeight, parts_are_slices_of_the_whole) {
  CaseSpec spec = little_case();
  spec.weights.outlier_channels = 2;
  spec.weights.outlier_scale = 8;
  for (const bool curve : {false, true}) {
    if (curve)
      spec.shape.curve_grid = 33;
    for (const SyntheticWeight& weight : weight_list(spec)) {
      const auto whole = values(spec, weight);
      const std::size_t item = probes::item_size(weight.dtype);
      const auto count = static_cast<std::int64_t>(whole.size() / item);
      for (const std::int64_t at : {std::int64_t{0}, count / 3, count - 1}) {
        const std::int64_t end = std::min(count, at + 5);
        std::vector<std::byte> part(static_cast<std::size_t>(end - at) * item);
        fill_weight(spec, weight, at, end, part.data());
        EXPECT_EQ(std::memcmp(part.data(), whole.data() + static_cast<std::size_t>(at) * item, part.size()), 0)
            << weight.name;
      }
    }
  }
}

TEST(FillWeight, outlier_channels_are_whole_rows) {
  CaseSpec plain = little_case(), spread = plain;
  plain.weights.dtype = spread.weights.dtype = "float32";
  spread.weights.outlier_channels = 2;
  spread.weights.outlier_scale = 8;
  const auto list = weight_list(plain);
  std::vector<std::size_t> first;
  for (const std::string name :
       {"blocks.1.mlp.fc2.weight", "video_patch_proj.weight", "blocks.0.attn.out_proj.weight"}) {
    const SyntheticWeight& weight = named(list, name);
    const auto a = values(plain, weight), b = values(spread, weight);
    const std::size_t row = a.size() / static_cast<std::size_t>(weight.shape[0]);
    std::vector<std::size_t> changed;
    for (std::size_t r = 0; r < static_cast<std::size_t>(weight.shape[0]); ++r)
      if (std::memcmp(a.data() + r * row, b.data() + r * row, row) != 0)
        changed.push_back(r);
    EXPECT_EQ(changed.size(), 2u);
    if (first.empty())
      first = changed;
    EXPECT_EQ(changed, first) << "the same channels everywhere";
  }
  const SyntheticWeight& qkv = named(list, "blocks.0.attn.qkv_proj.weight");
  EXPECT_EQ(values(plain, qkv), values(spread, qkv));
}

TEST(FillWeight, bfloat16_rounds_the_float32_values_to_nearest_even) {
  CaseSpec wide = little_case(), narrow = wide;
  wide.weights.dtype = "float32";
  const auto exact = values(wide, named(weight_list(wide), "blocks.0.mlp.fc1.weight"));
  const auto rounded = values(narrow, named(weight_list(narrow), "blocks.0.mlp.fc1.weight"));
  ASSERT_EQ(exact.size(), 2 * rounded.size());
  for (std::size_t i = 0; i < rounded.size() / 2; ++i) {
    float value = 0;
    std::memcpy(&value, exact.data() + 4 * i, 4);
    const double got = probes::to_double(probes::DType::bfloat16, rounded.data() + 2 * i);
    EXPECT_LE(std::abs(got - static_cast<double>(value)), std::abs(static_cast<double>(value)) * 0x1p-8);
  }
}

TEST(MakeInputs, conditioning_and_sinks_have_their_scale) {
  CaseSpec spec = little_case();
  const Inputs plain = make_inputs(spec);
  spec.weights.sink_rows = 1;
  spec.weights.sink_scale = 4;
  const Inputs sunk = make_inputs(spec);
  EXPECT_EQ(sunk.text[0], 4 * plain.text[0]);
  EXPECT_EQ(sunk.text[static_cast<std::size_t>(spec.shape.text_dim)],
            plain.text[static_cast<std::size_t>(spec.shape.text_dim)]);
  EXPECT_EQ(plain.video_rows, 6);
  EXPECT_EQ(plain.video_width, 8);
  EXPECT_EQ(static_cast<std::int64_t>(plain.video.size()), plain.video_rows * plain.video_width);
  EXPECT_EQ(plain.timesteps.timesteps, (std::vector<float>{0, 0.999f, 1.0f}));
}

} // namespace
} // namespace h3diff::cases::test
