#include "checkpoint_files.hpp"
#include "file.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include "json.hpp"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <set>

namespace h3diff::cases {

using nlohmann::json;
using probes::printable;

namespace {

Result<void> add_file(CheckpointFiles& out, const std::string& path) {
  auto file = SafetensorsFile::open(path);
  if (!file)
    return file.error();
  out.files.push_back(*file);
  for (const TensorEntry& tensor : out.files.back().tensors()) {
    if (!out.tensors.emplace(tensor.name, &tensor).second)
      return bad_input(
          fmt::format("{}: tensor {} is also in {}", path, printable(tensor.name), out.file_of[tensor.name]));
    out.file_of[tensor.name] = path;
  }
  return {};
}

// "x-00002-of-00005.safetensors" -> {2, 5}
std::optional<std::pair<int, int>> shard_number(std::string_view name) {
  const auto of = name.rfind("-of-");
  const auto end = name.rfind(".safetensors");
  if (of == std::string_view::npos || end == std::string_view::npos || end < of)
    return std::nullopt;
  const auto dash = name.rfind('-', of - 1);
  if (of == 0 || dash == std::string_view::npos)
    return std::nullopt;
  const auto number = [](std::string_view text) {
    int value = -1;
    const auto [last, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failure == std::errc() && last == text.data() + text.size() ? value : -1;
  };
  const int which = number(name.substr(dash + 1, of - dash - 1)), count = number(name.substr(of + 4, end - of - 4));
  if (which < 1 || count < which)
    return std::nullopt;
  return std::pair(which, count);
}

Result<void> add_indexed(CheckpointFiles& out, const std::string& folder, const std::string& index_path,
                         const std::vector<std::string>& present) {
  auto text = read_text(index_path);
  if (!text)
    return text.error();
  auto index = parse_json(*text, index_path);
  if (!index)
    return index.error();
  if (!index->is_object() || !index->contains("weight_map") || !(*index)["weight_map"].is_object())
    return bad_input(fmt::format("{}: has no \"weight_map\" object", index_path));
  std::set<std::string> shards;
  for (const auto& [tensor, file] : (*index)["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      return bad_input(fmt::format("{}: tensor {} is not mapped to the name of a file in the same folder", index_path,
                                   printable(tensor)));
    shards.insert(file.get<std::string>());
  }
  for (const std::string& shard : shards) {
    if (!std::binary_search(present.begin(), present.end(), shard))
      return bad_input(fmt::format("{}: names the file {}, which the folder lacks", index_path, printable(shard)));
    if (auto added = add_file(out, join(folder, shard)); !added)
      return added;
  }
  for (const std::string& name : present)
    if (!shards.contains(name))
      return bad_input(
          fmt::format("{}: does not name the file {}, which is in the folder", index_path, printable(name)));
  for (const auto& [tensor, file] : (*index)["weight_map"].items()) {
    const auto found = out.file_of.find(tensor);
    if (found == out.file_of.end() || found->second != join(folder, file.get<std::string>()))
      return bad_input(fmt::format("{}: says that tensor {} is in {}, which it is not", index_path, printable(tensor),
                                   printable(file.get<std::string>())));
  }
  for (const auto& [tensor, file] : out.file_of)
    if (!(*index)["weight_map"].contains(tensor))
      return bad_input(fmt::format("{}: does not name tensor {} of {}", index_path, printable(tensor), file));
  return {};
}

Result<void> add_folder(CheckpointFiles& out, const std::string& folder) {
  std::vector<std::string> present, indices;
  for (const std::string& name : file_names(folder)) {
    if (name.ends_with(".safetensors"))
      present.push_back(name);
    if (name.ends_with(".safetensors.index.json"))
      indices.push_back(name);
  }
  if (indices.size() > 1)
    return bad_input(fmt::format("{}: holds several index files ({}, {})", folder, indices[0], indices[1]));
  if (indices.size() == 1)
    return add_indexed(out, folder, join(folder, indices[0]), present);
  if (present.empty())
    return bad_input(fmt::format("{}: holds no .safetensors file", folder));
  // Shards without an index still say how many they are.
  for (const std::string& name : present)
    if (const auto shard = shard_number(name); shard && shard->second != static_cast<int>(present.size()))
      return bad_input(fmt::format("{}: {} is one of {} shards, but the folder holds {} files", folder, printable(name),
                                   shard->second, present.size()));
  for (const std::string& name : present)
    if (auto added = add_file(out, join(folder, name)); !added)
      return added;
  return {};
}

} // namespace

Result<CheckpointFiles> open_checkpoint_files(const std::string& path) {
  CheckpointFiles out;
  if (!folder_exists(path)) {
    if (auto added = add_file(out, path); !added)
      return added.error();
    return out;
  }
  if (auto added = add_folder(out, path); !added)
    return added.error();
  if (const std::string config = join(path, "config.json"); file_exists(config)) {
    auto text = read_text(config);
    if (!text)
      return text.error();
    auto parsed = parse_json(*text, config);
    if (!parsed)
      return parsed.error();
    out.config = std::move(*parsed);
    out.config_path = config;
  }
  return out;
}

} // namespace h3diff::cases
