#include "h3diff/cases/bundle.hpp"
#include "fixtures.hpp"
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <sys/resource.h>
#include <csignal>

namespace h3diff::cases::test {
namespace {

using nlohmann::json;

template <class T> std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T> void put(LooseTensor& tensor, std::size_t at, T value) {
  std::memcpy(tensor.bytes.data() + at * sizeof(T), &value, sizeof(T));
}

class Bundles : public Folder {
protected:
  void SetUp() override {
    Folder::SetUp();
    export_little(path("good"), Layout::diffusers);
  }
  std::string copy() {
    const std::string name = path(fmt::format("copy{}", count_++));
    std::filesystem::copy(path("good"), name, std::filesystem::copy_options::recursive);
    return name;
  }
  Result<Bundle> changed(const std::function<void(LooseFile&)>& change) {
    const std::string name = copy();
    LooseFile tensors = load_loose(name + "/inputs.safetensors");
    change(tensors);
    save_loose(name + "/inputs.safetensors", tensors);
    return open_bundle(name, {});
  }
  Error refused(const std::function<void(LooseFile&)>& change) { return error_of(changed(change)); }
  Result<Bundle> with_case(const std::function<void(json&)>& change) {
    const std::string name = copy();
    json value = json::parse(read_file(name + "/case.json"));
    change(value);
    write_file(name + "/case.json", value.dump());
    return open_bundle(name, {});
  }

private:
  int count_ = 0;
};

TEST_F(Bundles, come_back_as_they_were_made) {
  const CaseSpec spec = little_case();
  EXPECT_TRUE(is_bundle(path("good")));
  EXPECT_FALSE(is_bundle(path("good/transformer")));
  const auto bundle = open_bundle(path("good") + "/", {});
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(bundle->name, "good");
  EXPECT_EQ(bundle->case_name, "little");
  EXPECT_EQ(bundle->seed, spec.seed);
  EXPECT_TRUE(bundle->has_case);
  EXPECT_EQ(bundle->case_digest, inputs_digest(spec));
  const Inputs expected = make_inputs(spec);
  EXPECT_EQ(bundle->inputs.video, expected.video);
  EXPECT_EQ(bundle->inputs.audio, expected.audio);
  EXPECT_EQ(bundle->inputs.text, expected.text);
  EXPECT_EQ(bundle->inputs.timesteps.timesteps, expected.timesteps.timesteps);
  EXPECT_EQ(bundle->inputs.timesteps.indices, expected.timesteps.indices);
  EXPECT_EQ(bundle->inputs.sequence.position_ids, expected.sequence.position_ids);
  EXPECT_EQ(bundle->inputs.sequence.layout.token_tags, expected.sequence.layout.token_tags);
  EXPECT_EQ(bundle->inputs.sequence.layout.video_indices, expected.sequence.layout.video_indices);
  EXPECT_EQ(bundle->inputs.sequence.layout.cond_video_rows, 2);
  EXPECT_EQ(bundle->inputs.sequence.layout.cond_audio_rows, 4);
}

TEST_F(Bundles, need_no_case) {
  const std::string name = copy();
  std::filesystem::remove(name + "/case.json");
  const auto bundle = open_bundle(name, {});
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_FALSE(bundle->has_case);
  EXPECT_EQ(bundle->steps, 1);
  EXPECT_EQ(bundle->inputs.sequence.layout.cond_video_rows, 0);
}

TEST_F(Bundles, take_narrow_and_exact_dtypes) {
  // 1.5 in bfloat16, float16 and float64; int32 indices; float32 positions
  const auto bundle = changed([](LooseFile& f) {
    f["hidden_states"] = {"BF16", f["hidden_states"].shape, bytes_of(std::vector<std::uint16_t>(48, 0x3FC0))};
    f["audio_hidden_states"] = {"F16", f["audio_hidden_states"].shape,
                                bytes_of(std::vector<std::uint16_t>(50, 0x3E00))};
    f["encoder_hidden_states"] = {"F64", f["encoder_hidden_states"].shape, bytes_of(std::vector<double>(35, 1.5))};
    f["text_indices"] = {"I32", {5}, bytes_of(std::vector<std::int32_t>{0, 1, 2, 3, 4})};
    f["position_ids"] = {"F32", {21, 3}, bytes_of(std::vector<float>(63, 2.5f))};
    f["a_tensor_of_somebody_else"] = {"F32", {1}, "1234"};
  });
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(bundle->inputs.video, std::vector<float>(48, 1.5f));
  EXPECT_EQ(bundle->inputs.audio, std::vector<float>(50, 1.5f));
  EXPECT_EQ(bundle->inputs.text, std::vector<float>(35, 1.5f));
  EXPECT_EQ(bundle->inputs.video_dtype, probes::DType::bfloat16);
  EXPECT_EQ(bundle->inputs.audio_dtype, probes::DType::float16);
  EXPECT_EQ(bundle->inputs.text_dtype, probes::DType::float64);
  EXPECT_EQ(bundle->inputs.sequence.position_ids, std::vector<double>(63, 2.5));
}

TEST_F(Bundles, refuse_values_that_float32_cannot_hold) {
  EXPECT_SAYS(refused([](LooseFile& f) {
                f["encoder_hidden_states"] = {"F64", {1, 5, 7}, bytes_of(std::vector<double>(35, 0.1))};
              }),
              ExitCode::bad_input, "encoder_hidden_states", "element 0", "float32");
}

TEST_F(Bundles, refuse_every_missing_input) {
  for (const char* name :
       {"hidden_states", "audio_hidden_states", "encoder_hidden_states", "timestep", "timestep_indices", "token_tags",
        "position_ids", "video_indices", "audio_indices", "text_indices"})
    EXPECT_SAYS(refused([&](LooseFile& f) { f.erase(name); }), ExitCode::bad_input, "inputs.safetensors", name,
                "is missing");
}

TEST_F(Bundles, refuse_wrong_shapes) {
  for (const char* name : {"hidden_states", "audio_hidden_states", "encoder_hidden_states"}) {
    EXPECT_SAYS(refused([&](LooseFile& f) {
                  f[name].shape = {f[name].shape[1], f[name].shape[2]};
                }),
                ExitCode::bad_input, name, "not [1, rows,");
    EXPECT_SAYS(refused([&](LooseFile& f) {
                  f[name].shape = {1, f[name].shape[2], f[name].shape[1]};
                }),
                ExitCode::bad_input, name, "not [1, rows,");
  }
  EXPECT_SAYS(refused([](LooseFile& f) {
                f["position_ids"].shape = {3, 21};
              }),
              ExitCode::bad_input, "position_ids", "[21, 3]");
  EXPECT_SAYS(refused([](LooseFile& f) { f["timestep"].shape = {1, 3}; }), ExitCode::bad_input, "timestep");
  EXPECT_SAYS(refused([](LooseFile& f) { f["timestep"] = {"F32", {0}, ""}; }), ExitCode::bad_input, "timestep");
  EXPECT_SAYS(refused([](LooseFile& f) {
                f["token_tags"] = {"I64", {20}, f["token_tags"].bytes.substr(8)};
              }),
              ExitCode::bad_input, "timestep_indices", "[20]");
  EXPECT_SAYS(refused([](LooseFile& f) {
                f["video_indices"] = {"I64", {5}, f["video_indices"].bytes.substr(8)};
              }),
              ExitCode::bad_input, "video_indices", "not [6]");
}

TEST_F(Bundles, refuse_wrong_dtypes) {
  EXPECT_SAYS(refused([](LooseFile& f) { f["hidden_states"].dtype = "I32"; }), ExitCode::bad_input,
              "hidden_states is I32");
  EXPECT_SAYS(refused([](LooseFile& f) { f["hidden_states"].dtype = "U32"; }), ExitCode::bad_input,
              "hidden_states is U32");
  EXPECT_SAYS(refused([](LooseFile& f) { f["video_indices"].dtype = "F64"; }), ExitCode::bad_input,
              "video_indices is F64");
  EXPECT_SAYS(refused([](LooseFile& f) { f["timestep"].dtype = "I32"; }), ExitCode::bad_input, "timestep is I32");
}

TEST_F(Bundles, refuse_nan_and_infinity) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  EXPECT_SAYS(refused([&](LooseFile& f) { put(f["hidden_states"], 5, nan); }), ExitCode::bad_input,
              "hidden_states holds nan at element 5");
  EXPECT_SAYS(refused([&](LooseFile& f) { put(f["audio_hidden_states"], 0, -inf); }), ExitCode::bad_input,
              "audio_hidden_states holds -inf");
  EXPECT_SAYS(refused([&](LooseFile& f) { put(f["timestep"], 1, nan); }), ExitCode::bad_input, "timestep holds nan");
  EXPECT_SAYS(refused([&](LooseFile& f) { put(f["position_ids"], 7, static_cast<double>(inf)); }), ExitCode::bad_input,
              "position_ids holds inf");
}

TEST_F(Bundles, refuse_indices_and_tags_out_of_range) {
  const auto set = [&](const char* name, std::size_t at, std::int64_t value) {
    return refused([&](LooseFile& f) { put(f[name], at, value); });
  };
  EXPECT_SAYS(set("video_indices", 0, 21), ExitCode::bad_input, "video_indices", "21");
  EXPECT_SAYS(set("audio_indices", 0, -1), ExitCode::bad_input, "audio_indices", "-1");
  EXPECT_SAYS(set("text_indices", 0, std::int64_t{1} << 40), ExitCode::bad_input, "text_indices");
  EXPECT_SAYS(set("timestep_indices", 3, 3), ExitCode::bad_input, "timestep_indices", "3");
  EXPECT_SAYS(set("token_tags", 3, 3), ExitCode::bad_input, "token_tags", "3");
  EXPECT_SAYS(set("text_indices", 0, 1), ExitCode::bad_input, "text_indices", "repeats row 1");
  EXPECT_SAYS(set("text_indices", 0, 5), ExitCode::bad_input, "5", "video_indices");
}

TEST_F(Bundles, refuse_missing_parts) {
  std::string name = copy();
  std::filesystem::remove(name + "/inputs.safetensors");
  EXPECT_SAYS(error_of(open_bundle(name, {})), ExitCode::bad_input, "no inputs.safetensors");
  name = copy();
  std::filesystem::remove_all(name + "/transformer");
  EXPECT_SAYS(error_of(open_bundle(name, {})), ExitCode::bad_input, "transformer");
  EXPECT_SAYS(error_of(open_bundle(path("nowhere"), {})), ExitCode::bad_input, "nowhere");
}

TEST_F(Bundles, somebodys_case_may_say_little_or_more) {
  EXPECT_TRUE(with_case([](json& c) { c = {{"cond_video_rows", 1}}; }));
  EXPECT_TRUE(with_case([](json& c) { c["their_own"] = {1, 2}; }));
}

TEST_F(Bundles, refuse_a_case_that_contradicts) {
  const auto refused_case = [&](const std::function<void(json&)>& change) { return error_of(with_case(change)); };
  EXPECT_SAYS(refused_case([](json& c) { c = json::array(); }), ExitCode::bad_input, "case.json", "object");
  EXPECT_SAYS(refused_case([](json& c) { c["steps"] = 0; }), ExitCode::bad_input, "case.json", "steps");
  EXPECT_SAYS(refused_case([](json& c) { c["cond_video_rows"] = 7; }), ExitCode::bad_input, "conditioning rows");
  EXPECT_SAYS(refused_case([](json& c) { c["cond_audio_rows"] = -1; }), ExitCode::bad_input, "cond_audio_rows");
  EXPECT_SAYS(refused_case([](json& c) { c["layout"] = "gguf"; }), ExitCode::bad_input, "layout", "gguf");
  EXPECT_SAYS(refused_case([](json& c) { c["layout"] = "raw"; }), ExitCode::usage, "diffusers");
  EXPECT_SAYS(refused_case([](json& c) { c["shape"]["text_dim"] = 8; }), ExitCode::bad_input,
              "text_dim is 7 and not 8");
  EXPECT_SAYS(refused_case([](json& c) { c["schedule"][0]["sigma_video"] = 0.5; }), ExitCode::bad_input, "sigma_video");
  EXPECT_SAYS(refused_case([](json& c) { c["steps"] = 2; }), ExitCode::bad_input, "schedule");
}

TEST_F(Bundles, refuse_a_first_step_off_the_schedule) {
  const std::string name = copy();
  write_file(name + "/case.json", R"({"steps": 3, "cond_video_rows": 2, "cond_audio_rows": 4})");
  EXPECT_TRUE(open_bundle(name, {}));
  LooseFile tensors = load_loose(name + "/inputs.safetensors");
  put(tensors["timestep"], 0, 0.25f);
  save_loose(name + "/inputs.safetensors", tensors);
  EXPECT_SAYS(error_of(open_bundle(name, {})), ExitCode::bad_input, "row 0", "0.25", "step 0");
}

TEST_F(Bundles, export_refuses_wrong_options) {
  const auto refused_options = [&](const std::function<void(ExportOptions&)>& change) {
    ExportOptions options;
    options.path = path("new");
    options.layout = Layout::comfy;
    change(options);
    const Error error = error_of(export_bundle(little_case(), options));
    EXPECT_FALSE(std::filesystem::exists(path("new")));
    EXPECT_FALSE(std::filesystem::exists(path("new.partial")));
    return error;
  };
  EXPECT_SAYS(refused_options([&](auto& o) { o.path = path("good"); }), ExitCode::usage, "exists");
  EXPECT_SAYS(refused_options([&](auto& o) { o.path = path("good/transformer"), o.overwrite = true; }), ExitCode::usage,
              "no bundle");
  EXPECT_SAYS(refused_options([](auto& o) { o.curve_grid = 9, o.curve_rank = 4, o.layout = Layout::diffusers; }),
              ExitCode::usage, "curve");
  EXPECT_SAYS(refused_options([](auto& o) { o.curve_grid = 9; }), ExitCode::usage, "curve table");
  EXPECT_SAYS(refused_options([](auto& o) { o.pad_columns = 16; }), ExitCode::usage, "padding");
  EXPECT_SAYS(refused_options([](auto& o) { o.curve_grid = 9, o.curve_rank = 4, o.pad_columns = 4; }), ExitCode::usage,
              "padding to 4");
  EXPECT_SAYS(refused_options([](auto& o) { o.pad = "ones"; }), ExitCode::usage, "ones");
  EXPECT_SAYS(refused_options([&](auto& o) { o.path = path("no/such/place"); }), ExitCode::environment,
              "no/such/place");
}

TEST_F(Bundles, export_replaces_a_bundle_when_told) {
  ExportOptions options;
  options.path = path("good") + "/";
  options.layout = Layout::raw;
  options.overwrite = true;
  std::int64_t last = 0, total = 0;
  options.progress = [&](std::int64_t done, std::int64_t all) {
    EXPECT_GE(done, last);
    last = done, total = all;
  };
  ASSERT_TRUE(export_bundle(little_case(), options));
  EXPECT_EQ(open_bundle(path("good"), {})->checkpoint.layout(), Layout::raw);
  EXPECT_GT(total, 0);
  EXPECT_EQ(last, total);
}

TEST_F(Bundles, export_is_the_same_bytes_twice) {
  export_little(path("again"), Layout::diffusers);
  for (const char* file : {"inputs.safetensors", "case.json", "transformer/config.json",
                           "transformer/diffusion_pytorch_model.safetensors"})
    EXPECT_EQ(read_file(path("again/") + file), read_file(path("good/") + file)) << file;
}

// A file size limit stands in for a full disk: writing fails in the same way.
TEST_F(Bundles, export_to_a_full_disk_leaves_nothing) {
  ::rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const ::rlimit small{6000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  ExportOptions options;
  options.path = path("new");
  const auto done = export_bundle(little_case(), options);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_SAYS(error_of(done), ExitCode::environment, "cannot be written");
  EXPECT_FALSE(std::filesystem::exists(path("new")));
  EXPECT_FALSE(std::filesystem::exists(path("new.partial")));
}

TEST_F(Bundles, case_file_describes_every_step) {
  CaseSpec spec = little_case();
  spec.steps = 3;
  export_little(path("three"), Layout::comfy, spec);
  const json value = json::parse(read_file(path("three/case.json")));
  EXPECT_EQ(value["layout"], "comfy");
  ASSERT_EQ(value["schedule"].size(), 3u);
  std::int64_t rows = 0;
  for (const json& run : value["schedule"][1]["timestep_indices"])
    rows += run[1].get<std::int64_t>();
  EXPECT_EQ(rows, 21);
  EXPECT_EQ(value["schedule"][2]["sigma_video_next"], 0.0);
  const auto bundle = open_bundle(path("three"), {});
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(bundle->steps, 3);
  EXPECT_TRUE(CaseSpec::parse(value.dump(), "case.json"));
}

} // namespace
} // namespace h3diff::cases::test
