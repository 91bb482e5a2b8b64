#include "h3diff/cases/profile.hpp"
#include "fixtures.hpp"
#include <cstdlib>

namespace h3diff::cases::test {
namespace {

// Profiles of its own, through H3DIFF_DATA.
class Profiles : public Folder {
protected:
  void SetUp() override {
    Folder::SetUp();
    std::filesystem::create_directories(path("profiles"));
    ::setenv("H3DIFF_DATA", path("").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("H3DIFF_DATA");
    Folder::TearDown();
  }
  void add(const std::string& name, const std::string& text) { write_file(path("profiles/" + name + ".json"), text); }
};

TEST(NamedProfiles, all_load_and_cover_the_same_ops) {
  const auto reference = load_profile("diffusers-f32");
  ASSERT_TRUE(reference) << reference.error().message;
  for (const std::string& name : profile_names()) {
    const auto profile = load_profile(name);
    ASSERT_TRUE(profile) << profile.error().message;
    EXPECT_EQ(profile->name, name);
    for (const auto& [op, implementation] : reference->ops)
      EXPECT_TRUE(profile->ops.contains(op)) << name << " lacks " << op;
  }
}

TEST(NamedProfiles, inherit_and_override) {
  const auto bf16 = load_profile("diffusers-bf16"), synth = load_profile("diffsynth-f32");
  ASSERT_TRUE(bf16 && synth);
  EXPECT_EQ(bf16->compute_dtype, probes::DType::bfloat16);
  EXPECT_EQ(bf16->island_dtype, probes::DType::float32);
  EXPECT_EQ(bf16->ops.at("attn_qkv"), "split");
  EXPECT_EQ(synth->ops.at("attn_qkv"), "flat");
  EXPECT_EQ(synth->ops.at("fc1"), "gate_value");
  EXPECT_EQ(synth->ops.at("rope"), "torch");
}

TEST(NamedProfiles, an_unknown_one_lists_the_known) {
  EXPECT_SAYS(error_of(load_profile("difusers")), ExitCode::usage, "\"difusers\"", "diffusers-bf16, diffusers-f32");
}

TEST_F(Profiles, refuse_malformed_files) {
  const auto refused = [&](const std::string& text) {
    add("x", text);
    return error_of(load_profile("x"));
  };
  EXPECT_SAYS(refused("{"), ExitCode::bad_input, "x.json", "not JSON");
  EXPECT_SAYS(refused("[]"), ExitCode::bad_input, "x.json", "object");
  EXPECT_SAYS(refused(R"({"name":"y"})"), ExitCode::bad_input, "name must be \"x\"");
  EXPECT_SAYS(refused(R"({"name":"x","dtype":"float32"})"), ExitCode::bad_input, "dtype is not a known key");
  EXPECT_SAYS(refused(R"({"name":"x","compute_dtype":"int8"})"), ExitCode::bad_input, "compute_dtype", "int8");
  EXPECT_SAYS(refused(R"({"name":"x","island_dtype":"fp32"})"), ExitCode::bad_input, "island_dtype", "fp32");
  EXPECT_SAYS(refused(R"({"name":"x","ops":[]})"), ExitCode::bad_input, "ops");
  EXPECT_SAYS(refused(R"({"name":"x","ops":{"rope":1}})"), ExitCode::bad_input, "rope");
  EXPECT_SAYS(refused(R"({"name":"x","ops":{"rope":"a","rope":"b"}})"), ExitCode::bad_input, "\"rope\" twice");
  EXPECT_SAYS(refused(R"({"name":"x","inherit":"nobody"})"), ExitCode::bad_input, "nobody");
}

TEST_F(Profiles, refuse_a_cycle) {
  add("a", R"({"name":"a","inherit":"b"})");
  add("b", R"({"name":"b","inherit":"a"})");
  EXPECT_SAYS(error_of(load_profile("a")), ExitCode::bad_input, "a -> b -> a");
}

TEST_F(Profiles, data_folder_follows_the_environment) { EXPECT_EQ(data_folder(), path("")); }

TEST_F(Profiles, without_any_says_where_it_looked) {
  EXPECT_SAYS(error_of(load_profile("x")), ExitCode::usage, path(""));
}

} // namespace
} // namespace h3diff::cases::test
