#include "fixtures.hpp"
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace h3diff::cases::test {

namespace fs = std::filesystem;

void Folder::SetUp() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  root_ = fs::temp_directory_path() /
          ("h3diff-" + std::to_string(::getpid()) + "-" + info->test_suite_name() + "-" + info->name());
  fs::remove_all(root_);
  fs::create_directories(root_);
}

void Folder::TearDown() { fs::remove_all(root_); }

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  ASSERT_TRUE(file.good()) << path;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string out;
  for (int byte = 0; byte < 8; ++byte)
    out += static_cast<char>((std::uint64_t{header.size()} >> (8 * byte)) & 0xFF);
  return out + header + data;
}

LooseFile load_loose(const std::string& path) {
  LooseFile out;
  const auto file = SafetensorsFile::open(path);
  if (!file)
    throw std::runtime_error(file.error().message);
  for (const TensorEntry& tensor : file->tensors())
    out[tensor.name] = {tensor.dtype_name, tensor.shape,
                        std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())};
  return out;
}

void save_loose(const std::string& path, const LooseFile& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  write_file(path, safetensors_bytes(header.dump(), data));
}

CaseSpec little_case() {
  CaseSpec spec;
  spec.name = "little";
  spec.shape.num_layers = 2;
  spec.shape.num_refiner_layers = 1;
  spec.shape.hidden_size = 12;
  spec.shape.num_attention_heads = 3;
  spec.shape.attention_head_dim = 8;
  spec.shape.ffn_dim = 10;
  spec.shape.in_channels = 2;
  spec.shape.audio_in_channels = 5;
  spec.shape.text_dim = 7;
  spec.shape.freq_dim = 6;
  spec.shape.time_embed_hidden_dim = 9;
  spec.shape.time_embed_dim = 11;
  spec.shape.rope_freq_dim = 1;
  spec.geometry.text_rows = 5;
  spec.geometry.vision_rows = {1, 2};
  spec.geometry.keyframes = {"last"};
  spec.geometry.reference_audio = {2};
  spec.geometry.latent_frames = 2;
  spec.geometry.latent_height = 4;
  spec.geometry.latent_width = 2;
  spec.geometry.audio_latents = 3;
  spec.seed = 9;
  return spec;
}

std::string export_little(const std::string& path, Layout layout, const CaseSpec& spec) {
  ExportOptions options;
  options.path = path;
  options.layout = layout;
  const auto done = export_bundle(spec, options);
  EXPECT_TRUE(static_cast<bool>(done)) << (done ? "" : done.error().message);
  return path + "/transformer/" + (layout == Layout::diffusers ? "diffusion_pytorch_model" : "model") + ".safetensors";
}

} // namespace h3diff::cases::test
