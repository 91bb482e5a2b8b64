#include "h3diff/cases/checkpoint.hpp"
#include "fixtures.hpp"
#include <fmt/format.h>

namespace h3diff::cases::test {
namespace {

using nlohmann::json;

class CheckpointFiles : public Folder {
protected:
  // A copy of a good checkpoint, changed.
  Error refused(Layout layout, const std::function<void(LooseFile&)>& change, Checkpoint::Options options = {}) {
    const std::string name = path(fmt::format("b{}", count_++));
    const std::string file = export_little(name, layout);
    LooseFile tensors = load_loose(file);
    change(tensors);
    save_loose(file, tensors);
    return error_of(Checkpoint::open(name + "/transformer", options));
  }
  // The same with its config.json.
  Error refused_config(Layout layout, const std::function<void(json&)>& change) {
    const std::string name = path(fmt::format("b{}", count_++));
    export_little(name, layout);
    json config = json::parse(read_file(name + "/transformer/config.json"));
    change(config);
    write_file(name + "/transformer/config.json", config.dump());
    return error_of(Checkpoint::open(name + "/transformer", {}));
  }

private:
  int count_ = 0;
};

TEST_F(CheckpointFiles, all_layouts_hold_what_was_generated) {
  const CaseSpec spec = little_case();
  for (const Layout layout : {Layout::raw, Layout::comfy, Layout::diffusers}) {
    const std::string name = path(std::string(cases::name(layout)));
    export_little(name, layout);
    const auto checkpoint = Checkpoint::open(name + "/transformer", {layout, std::nullopt});
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->layout(), layout);
    EXPECT_EQ(checkpoint->shape(), spec.shape) << cases::name(layout);
    EXPECT_EQ(checkpoint->shape_from_config(), layout != Layout::comfy);
    std::size_t i = 0;
    for (const SyntheticWeight& weight : weight_list(spec)) {
      if (layout == Layout::diffusers && weight.name == "rope.inv_freq")
        continue;
      const WeightInfo& info = checkpoint->weights().at(i++);
      ASSERT_EQ(info.name, weight.name);
      EXPECT_EQ(info.dtype, weight.dtype);
      EXPECT_EQ(info.shape, weight.shape);
      std::int64_t count = 1;
      for (const std::int64_t size : weight.shape)
        count *= size;
      std::vector<std::byte> expected(static_cast<std::size_t>(count) * probes::item_size(weight.dtype)),
          got(expected.size());
      fill_weight(spec, weight, 0, count, expected.data());
      ASSERT_TRUE(checkpoint->read(weight.name, got));
      EXPECT_EQ(got, expected) << weight.name;
    }
    EXPECT_EQ(i, checkpoint->weights().size());
  }
}

TEST_F(CheckpointFiles, names_of_modules_and_probes) {
  export_little(path("b"), Layout::raw);
  const auto checkpoint = Checkpoint::open(path("b/transformer"), {});
  ASSERT_TRUE(checkpoint);
  const WeightInfo* adaln = checkpoint->find("blocks.1.adaln_proj.linear.weight");
  ASSERT_NE(adaln, nullptr);
  EXPECT_EQ(adaln->module, "blocks.1.adaln_proj.linear");
  EXPECT_EQ(adaln->probe, "weights.blocks.1.adaln_proj");
  EXPECT_EQ(checkpoint->find("final_layer.adaln_proj.linear.bias")->probe, "weights.final_layer.adaln_proj.bias");
  EXPECT_EQ(checkpoint->find("rope.inv_freq")->probe, "weights.rope.inv_freq");
  EXPECT_EQ(checkpoint->find("blocks.9.norm1.weight"), nullptr);
}

TEST_F(CheckpointFiles, shapes_are_read_off_the_tensors_without_a_config) {
  for (const Layout layout : {Layout::raw, Layout::comfy, Layout::diffusers}) {
    const std::string name = path(std::string(cases::name(layout)));
    export_little(name, layout);
    std::filesystem::remove(name + "/transformer/config.json");
    const auto checkpoint = Checkpoint::open(name + "/transformer", {layout, std::nullopt});
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->shape(), little_case().shape) << cases::name(layout);
    EXPECT_FALSE(checkpoint->shape_from_config());
  }
}

TEST_F(CheckpointFiles, a_stated_shape_fills_in_and_is_held_against_the_tensors) {
  CaseSpec spec = little_case();
  spec.shape.attention_head_dim = 16; // from which one frequency does not follow
  export_little(path("b"), Layout::diffusers, spec);
  std::filesystem::remove(path("b/transformer/config.json"));
  const auto checkpoint = Checkpoint::open(path("b/transformer"), {std::nullopt, spec.shape});
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->shape().rope_freq_dim, 1);
  spec.shape.text_dim = 99;
  EXPECT_SAYS(error_of(Checkpoint::open(path("b/transformer"), {std::nullopt, spec.shape})), ExitCode::bad_input,
              "text_dim is 7 and not 99");
}

TEST_F(CheckpointFiles, comfy_is_known_by_its_prefix_and_raw_by_its_config) {
  const std::string file = export_little(path("b"), Layout::comfy);
  EXPECT_SAYS(error_of(Checkpoint::open(file, {})), ExitCode::usage, "--layout raw or --layout comfy");
  EXPECT_SAYS(error_of(Checkpoint::open(path("b/transformer"), {})), ExitCode::usage, "--layout");
  LooseFile prefixed;
  for (auto& [name, tensor] : load_loose(file))
    prefixed["model.diffusion_model." + name] = tensor;
  save_loose(file, prefixed);
  const auto comfy = Checkpoint::open(file, {});
  ASSERT_TRUE(comfy) << comfy.error().message;
  EXPECT_EQ(comfy->layout(), Layout::comfy);
  EXPECT_NE(comfy->find("blocks.0.norm1.weight"), nullptr);
  prefixed["stray"] = prefixed.begin()->second;
  save_loose(file, prefixed);
  EXPECT_SAYS(error_of(Checkpoint::open(file, {})), ExitCode::bad_input, "stray", "prefix");
  export_little(path("r"), Layout::raw);
  EXPECT_EQ(Checkpoint::open(path("r/transformer"), {})->layout(), Layout::raw);
}

TEST_F(CheckpointFiles, a_layout_that_the_names_contradict_is_wrong_usage) {
  export_little(path("d"), Layout::diffusers);
  export_little(path("r"), Layout::raw);
  EXPECT_SAYS(error_of(Checkpoint::open(path("d/transformer"), {Layout::raw, std::nullopt})), ExitCode::usage,
              "diffusers");
  EXPECT_SAYS(error_of(Checkpoint::open(path("r/transformer"), {Layout::diffusers, std::nullopt})), ExitCode::usage,
              "diffusers");
}

TEST_F(CheckpointFiles, missing_surplus_and_misshapen_tensors) {
  EXPECT_SAYS(refused(Layout::raw, [](LooseFile& f) { f.erase("blocks.1.norm2.weight"); }), ExitCode::bad_input,
              "blocks.1.norm2.weight is missing");
  EXPECT_SAYS(refused(Layout::diffusers, [](LooseFile& f) { f.erase("transformer_blocks.0.attn.to_k.weight"); }),
              ExitCode::bad_input, "transformer_blocks.0.attn.to_k.weight is missing");
  EXPECT_SAYS(refused(Layout::raw,
                      [](LooseFile& f) {
                        f["blocks.0.attn.surprise"] = {"F32", {1}, "1234"};
                      }),
              ExitCode::bad_input, "blocks.0.attn.surprise is left over");
  EXPECT_SAYS(refused(Layout::raw,
                      [](LooseFile& f) {
                        f["blocks.1.norm1.weight"] = {"BF16", {13}, std::string(26, '\0')};
                      }),
              ExitCode::bad_input, "blocks.1.norm1.weight", "[13]", "[12]", "config.json");
  EXPECT_SAYS(refused(Layout::raw,
                      [](LooseFile& f) {
                        f["blocks.1.norm1.weight"] = {"BF16", {12, 1}, std::string(24, '\0')};
                      }),
              ExitCode::bad_input, "[12,1]");
  EXPECT_SAYS(refused(Layout::raw,
                      [](LooseFile& f) {
                        f["blocks.1.norm1.weight"] = {"I8", {12}, std::string(12, '\0')};
                      }),
              ExitCode::bad_input, "I8", "no weight dtype");
  EXPECT_SAYS(refused(Layout::diffusers,
                      [](LooseFile& f) {
                        f["transformer_blocks.0.attn.to_v.weight"] = {"F32", {24, 12}, std::string(1152, '\0')};
                      }),
              ExitCode::bad_input, "to_v.weight is F32", "siblings");
  EXPECT_SAYS(refused(Layout::raw,
                      [](LooseFile& f) { f["blocks.99999999999999999999.norm1.weight"] = f["blocks.1.norm1.weight"]; }),
              ExitCode::bad_input, "99999999999999999999", "left over");
  EXPECT_SAYS(refused(Layout::raw,
                      [](LooseFile& f) {
                        f["blocks.0.attn.qkv_proj.weight_scale"] = {"F32", {1}, "1234"};
                      }),
              ExitCode::bad_input, "quantised");
  EXPECT_SAYS(refused(Layout::raw,
                      [](LooseFile& f) {
                        f = {{"lora.weight", {"F32", {1}, "1234"}}};
                      }),
              ExitCode::bad_input, "no MiniMax-H3 transformer");
  EXPECT_SAYS(refused(Layout::raw, [](LooseFile& f) { f["proj_in.weight"] = f["video_patch_proj.weight"]; }),
              ExitCode::bad_input, "two layouts");
}

TEST_F(CheckpointFiles, every_tensor_is_needed) {
  for (const Layout layout : {Layout::comfy, Layout::diffusers}) {
    const std::string name = path(std::string(cases::name(layout)));
    const std::string file = export_little(name, layout);
    const LooseFile good = load_loose(file);
    for (const auto& [tensor, unused] : good) {
      LooseFile less = good;
      less.erase(tensor);
      save_loose(file, less);
      const Error error = error_of(Checkpoint::open(name + "/transformer", {layout, std::nullopt}));
      EXPECT_EQ(error.code, ExitCode::bad_input) << tensor << ": " << error.message;
    }
  }
}

TEST_F(CheckpointFiles, projections_narrower_than_the_curve_table) {
  CaseSpec spec = little_case();
  spec.shape.curve_grid = 9;
  spec.shape.time_embed_dim = 4;
  const std::string file = export_little(path("b"), Layout::comfy, spec);
  LooseFile tensors = load_loose(file);
  tensors["adaln_t_table"] = {"F32", {9, 6}, std::string(9 * 6 * 4, '\0')};
  save_loose(file, tensors);
  EXPECT_SAYS(error_of(Checkpoint::open(file, {Layout::comfy, std::nullopt})), ExitCode::bad_input,
              "blocks.0.adaln_proj.linear.weight", "[216,4]", "[216,6]");
}

TEST_F(CheckpointFiles, a_config_that_disagrees) {
  EXPECT_SAYS(refused_config(Layout::raw, [](json& c) { c["hidden_size"] = 16; }), ExitCode::bad_input, "config.json",
              "[16,");
  EXPECT_SAYS(refused_config(Layout::raw, [](json& c) { c["token_refiner_num_layers"] = 2; }), ExitCode::bad_input,
              "token_refiner.blocks.1", "missing", "config.json");
  EXPECT_SAYS(refused_config(Layout::diffusers, [](json& c) { c["num_layers"] = 1; }), ExitCode::bad_input,
              "transformer_blocks.1", "left over");
  EXPECT_SAYS(refused_config(Layout::diffusers, [](json& c) { c["num_attention_heads"] = 6; }), ExitCode::bad_input,
              "to_q");
  EXPECT_SAYS(refused_config(Layout::diffusers, [](json& c) { c["num_layers"] = -1; }), ExitCode::bad_input,
              "num_layers");
  EXPECT_SAYS(refused_config(Layout::diffusers, [](json& c) { c["num_layers"] = 1e300; }), ExitCode::bad_input,
              "num_layers");
  EXPECT_SAYS(refused_config(Layout::diffusers,
                             [](json& c) {
                               c["patch_size"] = {1, 2};
                             }),
              ExitCode::bad_input, "patch_size");
  EXPECT_SAYS(refused_config(Layout::diffusers, [](json& c) { c["rope_freq_dim"] = 4; }), ExitCode::bad_input,
              "24 rotary channels");
  EXPECT_SAYS(refused_config(Layout::diffusers, [](json& c) { c = json::array(); }), ExitCode::bad_input, "object");
}

class Shards : public Folder {
protected:
  void SetUp() override {
    Folder::SetUp();
    ExportOptions options;
    options.path = path("b");
    options.layout = Layout::diffusers;
    options.shard_bytes = 6000;
    ASSERT_TRUE(export_bundle(little_case(), options));
    folder_ = path("b/transformer/");
    index_ = folder_ + "diffusion_pytorch_model.safetensors.index.json";
    table_ = json::parse(read_file(index_));
    first_ = table_["weight_map"].begin().value().get<std::string>();
  }
  Result<Checkpoint> open() const { return Checkpoint::open(folder_, {}); }
  void store_index() const { write_file(index_, table_.dump()); }
  std::string folder_, index_, first_;
  json table_;
};

TEST_F(Shards, read_as_one) {
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  export_little(path("whole"), Layout::diffusers);
  EXPECT_EQ(checkpoint->digest(), Checkpoint::open(path("whole/transformer"), {})->digest());
}

TEST_F(Shards, read_without_an_index_if_all_are_there) {
  std::filesystem::remove(index_);
  EXPECT_TRUE(open());
  std::filesystem::remove(folder_ + first_);
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "is one of");
}

TEST_F(Shards, a_file_that_the_index_names_is_absent) {
  std::filesystem::remove(folder_ + first_);
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "index.json", first_, "lacks");
}

TEST_F(Shards, a_file_that_the_index_does_not_name) {
  std::filesystem::copy(folder_ + first_, folder_ + "more.safetensors");
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "more.safetensors");
}

TEST_F(Shards, a_tensor_that_the_index_does_not_name) {
  table_["weight_map"].erase("proj_in.bias");
  store_index();
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "proj_in.bias");
}

TEST_F(Shards, a_tensor_that_no_file_has) {
  table_["weight_map"]["proj_in.gain"] = first_;
  store_index();
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "proj_in.gain");
}

TEST_F(Shards, a_tensor_in_another_file_than_said) {
  for (auto& [name, file] : table_["weight_map"].items())
    if (file != first_) {
      file = first_;
      break;
    }
  store_index();
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "which it is not");
}

TEST_F(Shards, a_tensor_in_two_files) {
  std::filesystem::remove(index_);
  std::filesystem::create_directories(path("two"));
  std::filesystem::copy(folder_ + first_, path("two/a.safetensors"));
  std::filesystem::copy(folder_ + first_, path("two/b.safetensors"));
  EXPECT_SAYS(error_of(Checkpoint::open(path("two"), {})), ExitCode::bad_input, "is also in", "a.safetensors");
}

TEST_F(Shards, an_index_that_is_no_index) {
  write_file(index_, "{}");
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "weight_map");
  write_file(index_, "{");
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "not JSON");
  write_file(index_, R"({"weight_map":{"proj_in.bias":"../elsewhere.safetensors"}})");
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "same folder");
  write_file(folder_ + "other.safetensors.index.json", "{}");
  EXPECT_SAYS(error_of(open()), ExitCode::bad_input, "several index files");
}

TEST_F(Shards, a_folder_without_any) {
  std::filesystem::create_directories(path("empty"));
  EXPECT_SAYS(error_of(Checkpoint::open(path("empty"), {})), ExitCode::bad_input, "no .safetensors file");
  EXPECT_SAYS(error_of(Checkpoint::open(path("nowhere"), {})), ExitCode::bad_input, "nowhere");
}

} // namespace
} // namespace h3diff::cases::test
