#include "torch_half.hpp"
#include "child.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace h3diff::cli {

std::string self_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::optional<std::string> torch_half_path() {
  const std::string path = (std::filesystem::path(self_path()).parent_path() / "h3diff-torch").string();
  if (access(path.c_str(), X_OK) != 0)
    return std::nullopt;
  return path;
}

Error exec_torch_half(const std::vector<std::string>& words) {
  const auto path = torch_half_path();
  if (!path)
    return environment_error(fmt::format("'{}' needs the program h3diff-torch (the half that uses libtorch), which is "
                                         "not installed beside {}",
                                         words.empty() ? "run" : words.front(), self_path()));
  std::vector<char*> argv{const_cast<char*>(path->c_str())};
  for (const std::string& word : words)
    argv.push_back(const_cast<char*>(word.c_str())); // execv does not write to them
  argv.push_back(nullptr);
  execv(path->c_str(), argv.data());
  return environment_error(fmt::format("cannot start {}: {}", *path, std::strerror(errno)));
}

Result<nlohmann::json> torch_facts_of_half() {
  const auto path = torch_half_path();
  if (!path)
    return environment_error("h3diff-torch is not installed");
  auto child = run_child({*path, "facts"}, true);
  if (!child)
    return child.error();
  if (child->exit_code != 0)
    return environment_error(fmt::format("{} ended with {}; start it by hand to see why", *path, child->exit_code));
  nlohmann::json facts = nlohmann::json::parse(child->output, nullptr, false);
  if (!facts.is_object())
    return environment_error(fmt::format("{} did not answer with JSON", *path));
  return facts;
}

} // namespace h3diff::cli
