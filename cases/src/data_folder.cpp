#include "data_folder.hpp"
#include "file.hpp"
#include "h3diff/cases/profile.hpp"
#include <cstdlib>
#include <filesystem>

namespace h3diff::cases {

std::string data_folder() {
  if (const char* given = std::getenv("H3DIFF_DATA"); given && *given)
    return given;
  std::error_code failure;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (!failure) {
    const auto installed = (program.parent_path() / ".." / "share" / "h3diff").lexically_normal().string();
    if (folder_exists(installed))
      return installed;
  }
  return H3DIFF_SOURCE_DATA;
}

std::vector<std::string> data_names(const std::string& kind) {
  std::vector<std::string> names;
  for (const std::string& file : file_names(join(data_folder(), kind)))
    if (file.ends_with(".json"))
      names.push_back(file.substr(0, file.size() - 5));
  return names;
}

} // namespace h3diff::cases
