// Files: whole small ones, mapped large ones, and outputs that appear under their name only when complete.
#pragma once
#include "h3diff/probes/result.hpp"
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace h3diff::cases {

// A read-only mapping. Nothing is read before it is touched.
class MappedFile {
public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path); // bad_input
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }

private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file of at most `limit` bytes; bad_input otherwise.
Result<std::string> read_text(const std::string& path, std::size_t limit = std::size_t{256} << 20);
bool file_exists(const std::string& path);
bool folder_exists(const std::string& path);
// Names (not paths) of the regular files of a folder, sorted.
std::vector<std::string> file_names(const std::string& folder);
std::string last_component(const std::string& path);
std::string join(const std::string& folder, const std::string& name);

// Writes PATH.partial; commit() renames it to PATH. Destroyed before, it removes what it wrote.
// Failures are environment errors (a full disk, no permission).
class OutputFile {
public:
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> commit();

private:
  OutputFile() = default;
  Result<void> flush();
  void discard();
  std::string path_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
};

Result<void> write_text(const std::string& path, std::string_view text);

} // namespace h3diff::cases
