#include "fixtures.hpp"
#include <set>

namespace h3diff::cases::test {
namespace {

using nlohmann::json;

Error refused(const std::string& text) { return error_of(CaseSpec::parse(text, "x.json")); }

// The little case with one value changed.
Error refused(const std::string& pointer, const json& value) {
  json changed = json::parse(little_case().to_json());
  changed[json::json_pointer(pointer)] = value;
  return refused(changed.dump());
}

TEST(CaseSpec, round_trips) {
  CaseSpec spec = little_case();
  spec.seed = UINT64_MAX;
  spec.shift_video = 2.7f;
  spec.weights = {"float32", 2, 8.5, 3, 20.0};
  spec.steps = 4;
  const auto again = CaseSpec::parse(spec.to_json(), "x.json");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->to_json(), spec.to_json());
  EXPECT_EQ(again->shape, spec.shape);
  EXPECT_EQ(again->seed, UINT64_MAX);
  EXPECT_EQ(again->shift_video, 2.7f);
}

TEST(CaseSpec, the_named_cases) {
  const auto names = case_names();
  EXPECT_EQ(names, (std::vector<std::string>{"block", "full", "small", "tiny"}));
  for (const std::string& name : names) {
    const auto spec = load_case(name);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_FALSE(spec->description.empty());
    const PackedSequence packed = pack(spec->geometry, spec->shape);
    EXPECT_TRUE(probes::check(packed.layout)) << name;
    EXPECT_EQ(static_cast<std::int64_t>(packed.position_ids.size()), 3 * packed.layout.rows);
  }
}

TEST(CaseSpec, tiny_and_small_are_as_documented) {
  const auto tiny = load_case("tiny"), small = load_case("small");
  ASSERT_TRUE(tiny && small);
  const auto a = pack(tiny->geometry, tiny->shape).layout, b = pack(small->geometry, small->shape).layout;
  EXPECT_EQ(a.text_indices.size(), 7u);
  EXPECT_EQ(a.audio_indices.size(), 6u);
  EXPECT_EQ(a.video_indices.size(), 48u);
  EXPECT_NEAR(static_cast<double>(b.rows), 1000, 50);
  EXPECT_GT(b.cond_video_rows, 0);
  EXPECT_GT(b.cond_audio_rows, 0);
  EXPECT_GT(small->shape.inner_dim(), small->shape.hidden_size);
  for (const std::int64_t width : {small->shape.hidden_size, small->shape.inner_dim(), small->shape.ffn_dim,
                                   small->shape.text_dim, small->shape.time_embed_dim})
    EXPECT_EQ(width % 256, 0);
  const probes::ModelShape published;
  EXPECT_EQ(load_case("full")->shape, published);
}

TEST(CaseSpec, full_has_the_rows_of_its_canvas) {
  const auto full = load_case("full");
  ASSERT_TRUE(full);
  const auto layout = pack(full->geometry, full->shape).layout;
  const std::int64_t rows_per_frame = (768 / 32) * (1344 / 32);
  EXPECT_EQ(layout.cond_video_rows, 2 * rows_per_frame);
  EXPECT_EQ(static_cast<std::int64_t>(layout.video_indices.size()), (2 + 37) * rows_per_frame);
}

TEST(CaseSpec, an_unknown_case_lists_the_known) {
  EXPECT_SAYS(error_of(load_case("tinny")), ExitCode::usage, "\"tinny\"", "block, full, small, tiny");
  EXPECT_SAYS(error_of(load_case("../cases/tiny")), ExitCode::usage, "tiny");
}

TEST(CaseSpec, refuses_text_that_is_no_case) {
  EXPECT_SAYS(refused(""), ExitCode::bad_input, "x.json", "not JSON");
  EXPECT_SAYS(refused("[]"), ExitCode::bad_input, "x.json", "object");
  EXPECT_SAYS(refused("{}"), ExitCode::bad_input, "name");
  EXPECT_SAYS(refused(R"({"name":"a"})"), ExitCode::bad_input, "geometry is missing");
  EXPECT_SAYS(refused(R"({"name":"a","geometry":{}})"), ExitCode::bad_input, "geometry.text_rows is missing");
  EXPECT_SAYS(refused(R"({"name":"a","name":"b","geometry":{"text_rows":1}})"), ExitCode::bad_input, "\"name\" twice");
  EXPECT_SAYS(refused(R"({"name":"a","geometry":{"text_rows":1},"color":1})"), ExitCode::bad_input,
              "color is not a known key");
  EXPECT_SAYS(refused(R"({"name":"a","geometry":{"text_rows":1,"rows":2}})"), ExitCode::bad_input, "geometry.rows");
}

TEST(CaseSpec, refuses_values_out_of_range) {
  EXPECT_SAYS(refused("/name", "a/b"), ExitCode::bad_input, "name");
  EXPECT_SAYS(refused("/seed", -1), ExitCode::bad_input, "seed");
  EXPECT_SAYS(refused("/steps", 0), ExitCode::bad_input, "steps");
  EXPECT_SAYS(refused("/steps", 1.5), ExitCode::bad_input, "steps");
  EXPECT_SAYS(refused("/shift_video", 0), ExitCode::bad_input, "shift_video");
  EXPECT_SAYS(refused("/capture", "everything"), ExitCode::bad_input, "capture");
  EXPECT_SAYS(refused("/shape", 3), ExitCode::bad_input, "shape");
  EXPECT_SAYS(refused("/shape/num_layers", 0), ExitCode::bad_input, "shape.num_layers");
  EXPECT_SAYS(refused("/shape/hidden_size", std::int64_t{1} << 40), ExitCode::bad_input, "shape.hidden_size");
  EXPECT_SAYS(refused("/shape/freq_dim", 7), ExitCode::bad_input, "shape.freq_dim", "even");
  EXPECT_SAYS(refused("/shape/rope_freq_dim", 2), ExitCode::bad_input, "12 rotary channels");
  EXPECT_SAYS(refused("/shape/curve_grid", 1), ExitCode::bad_input, "shape.curve_grid");
  EXPECT_SAYS(refused("/geometry/text_rows", 0), ExitCode::bad_input, "geometry.text_rows");
  EXPECT_SAYS(refused("/geometry/vision_rows", {1, 5}), ExitCode::bad_input, "holds 5");
  EXPECT_SAYS(refused("/geometry/vision_rows", {1, 1}), ExitCode::bad_input, "holds 1");
  EXPECT_SAYS(refused("/geometry/keyframes", {"middle"}), ExitCode::bad_input, "middle");
  EXPECT_SAYS(refused("/geometry/reference_audio", {0}), ExitCode::bad_input, "reference_audio");
  EXPECT_SAYS(refused("/geometry/latent_height", 3), ExitCode::bad_input, "patch");
  EXPECT_SAYS(refused("/geometry/latent_frames", 1 << 24), ExitCode::bad_input, "latent_frames");
  json huge = json::parse(little_case().to_json());
  huge["geometry"]["latent_height"] = huge["geometry"]["latent_width"] = huge["geometry"]["latent_frames"] = 1 << 14;
  EXPECT_SAYS(refused(huge.dump()), ExitCode::bad_input, "rows, more than");
  EXPECT_SAYS(refused("/weights/dtype", "float16"), ExitCode::bad_input, "weights.dtype");
  EXPECT_SAYS(refused("/weights/outlier_channels", 13), ExitCode::bad_input, "outlier_channels");
}

TEST(Packing, segments_and_tags) {
  const CaseSpec spec = little_case();
  const PackedSequence packed = pack(spec.geometry, spec.shape);
  const probes::SequenceLayout& layout = packed.layout;
  // 5 text, 1 keyframe of 2 rows, 2 x 2 reference rows, 2 x 3 audio, 2 frames of 2 rows
  EXPECT_EQ(layout.rows, 5 + 2 + 4 + 6 + 4);
  EXPECT_EQ(layout.video_indices, (std::vector<std::int64_t>{5, 6, 17, 18, 19, 20}));
  EXPECT_EQ(layout.audio_indices, (std::vector<std::int64_t>{7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(layout.cond_video_rows, 2);
  EXPECT_EQ(layout.cond_audio_rows, 4);
  EXPECT_EQ(layout.token_tags,
            (std::vector<std::int32_t>{1, 0, 0, 1, 1, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0}));
}

TEST(RowTimesteps, distinct_ascending_and_pinned) {
  const CaseSpec spec = little_case();
  const auto layout = pack(spec.geometry, spec.shape).layout;
  const RowTimesteps rows = row_timesteps(layout, 0.25f, 0.125f);
  EXPECT_EQ(rows.timesteps, (std::vector<float>{0.125f, 0.25f, 0.999f, 1.0f}));
  EXPECT_EQ(rows.indices[0], 1);  // text follows the video
  EXPECT_EQ(rows.indices[5], 2);  // keyframe
  EXPECT_EQ(rows.indices[7], 3);  // reference soundtrack
  EXPECT_EQ(rows.indices[11], 0); // audio
  EXPECT_EQ(rows.indices[20], 1); // video
  EXPECT_EQ(row_timesteps(layout, 0.9995f, 0.5f).timesteps, (std::vector<float>{0.5f, 0.9995f, 1.0f}));
}

} // namespace
} // namespace h3diff::cases::test
