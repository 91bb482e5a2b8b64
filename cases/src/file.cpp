#include "file.hpp"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <system_error>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace h3diff::cases {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

std::string reason() { return std::generic_category().message(errno); }

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

} // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0)
    return bad_input(fmt::format("{}: cannot be opened ({})", path, reason()));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0)
    return bad_input(fmt::format("{}: cannot be read ({})", path, reason()));
  if (!S_ISREG(status.st_mode))
    return bad_input(fmt::format("{}: is not a regular file", path));
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->size_ = static_cast<std::size_t>(status.st_size);
  if (mapped->size_ > 0) {
    void* data = ::mmap(nullptr, mapped->size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (data == MAP_FAILED) {
      mapped->size_ = 0;
      return environment_error(fmt::format("{}: cannot be mapped ({})", path, reason()));
    }
    mapped->data_ = static_cast<const std::byte*>(data);
  }
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

MappedFile::~MappedFile() {
  if (data_)
    ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::string> read_text(const std::string& path, std::size_t limit) {
  auto mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.error();
  const auto bytes = (*mapped)->bytes();
  if (bytes.size() > limit)
    return bad_input(fmt::format("{}: is {} bytes long, more than the {} expected at most", path, bytes.size(), limit));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool folder_exists(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> file_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (auto entry = fs::directory_iterator(folder, ignored); entry != fs::directory_iterator();
       entry.increment(ignored)) {
    if (ignored)
      break;
    std::error_code unreadable;
    if (entry->is_regular_file(unreadable))
      names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string last_component(const std::string& path) {
  fs::path normal = fs::path(path).lexically_normal();
  if (!normal.has_filename())
    normal = normal.parent_path(); // a trailing slash
  return normal.filename().string();
}

std::string join(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

Result<OutputFile> OutputFile::create(const std::string& path) {
  OutputFile file;
  file.fd_ = ::open((path + ".partial").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.fd_ < 0)
    return environment_error(fmt::format("{}: cannot be written ({})", path, reason()));
  file.path_ = path;
  file.buffer_.reserve(buffer_bytes);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this != &other) {
    discard();
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    buffer_ = std::move(other.buffer_);
  }
  return *this;
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() {
  if (fd_ < 0)
    return;
  ::close(std::exchange(fd_, -1));
  ::unlink((path_ + ".partial").c_str());
}

Result<void> OutputFile::flush() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t written = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return environment_error(fmt::format("{}: cannot be written ({})", path_, reason()));
    done += static_cast<std::size_t>(written);
  }
  buffer_.clear();
  return {};
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), buffer_bytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    if (buffer_.size() == buffer_bytes)
      if (auto flushed = flush(); !flushed)
        return flushed;
  }
  return {};
}

Result<void> OutputFile::commit() {
  if (auto flushed = flush(); !flushed)
    return flushed;
  // Some file systems report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0 || ::rename((path_ + ".partial").c_str(), path_.c_str()) != 0) {
    const Error error = environment_error(fmt::format("{}: cannot be written ({})", path_, reason()));
    ::unlink((path_ + ".partial").c_str());
    return error;
  }
  return {};
}

Result<void> write_text(const std::string& path, std::string_view text) {
  auto file = OutputFile::create(path);
  if (!file)
    return file.error();
  if (auto written = file->write(std::as_bytes(std::span(text.data(), text.size()))); !written)
    return written;
  return file->commit();
}

} // namespace h3diff::cases
