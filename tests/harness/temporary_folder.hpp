// A folder of one test's own, removed at its end.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

namespace h3diff::test {

class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "h3diff-harness-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  // Flat, and not by remove_all: libtorch.so exports one of its own, which crashes when it is called from outside.
  ~TemporaryFolder() {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      files.push_back(entry.path().string());
    for (const std::string& file : files)
      std::remove(file.c_str());
    rmdir(path_.c_str());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

private:
  std::filesystem::path path_;
};

} // namespace h3diff::test
