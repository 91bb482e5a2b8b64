// Which files make up a checkpoint, and which tensors they hold together.
#pragma once
#include "h3diff/cases/safetensors.hpp"
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace h3diff::cases {

struct CheckpointFiles {
  std::vector<SafetensorsFile> files;
  std::map<std::string, const TensorEntry*, std::less<>> tensors; // by the files' names
  std::map<std::string, std::string, std::less<>> file_of;        // tensor -> path of its file
  std::string config_path;                                        // "" without config.json
  std::optional<nlohmann::json> config;
};

Result<CheckpointFiles> open_checkpoint_files(const std::string& path);

} // namespace h3diff::cases
