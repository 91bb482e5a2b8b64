#include "commit_file.hpp"

#include <fmt/format.h>

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace h3diff::probes {
namespace {

constexpr std::uint64_t max_address = (std::uint64_t{1} << 62) - 1;

Error file_error(const std::string& path, int error) {
  return environment_error(fmt::format("{} cannot be written: {}", path, std::strerror(error)));
}

} // namespace

// The callbacks that HDF5 calls. The driver's info is a pointer to the CommitFile, which outlives the HDF5 file.
struct CommitDriver {
  struct File {
    H5FD_t base; // HDF5 fills it in and expects it first
    CommitFile* target;
  };

  static File* cast(H5FD_t* file) { return reinterpret_cast<File*>(file); }
  static const File* cast(const H5FD_t* file) { return reinterpret_cast<const File*>(file); }

  static H5FD_t* open(const char*, unsigned, hid_t access, haddr_t) {
    const auto* info = static_cast<CommitFile* const*>(H5Pget_driver_info(access));
    if (info == nullptr)
      return nullptr;
    auto* file = static_cast<File*>(std::calloc(1, sizeof(File)));
    if (file == nullptr)
      return nullptr;
    file->target = *info;
    return &file->base;
  }
  static herr_t close(H5FD_t* file) {
    std::free(file);
    return 0;
  }
  static int compare(const H5FD_t* a, const H5FD_t* b) {
    const auto* x = cast(a)->target;
    const auto* y = cast(b)->target;
    return x < y ? -1 : x > y ? 1 : 0;
  }
  static herr_t query(const H5FD_t*, unsigned long* flags) {
    // No aggregation and no accumulation: each piece of metadata arrives here by itself, and new pieces always
    // lie behind the committed end.
    *flags = H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
  }
  static haddr_t get_end(const H5FD_t* file, H5FD_mem_t) { return cast(file)->target->end_; }
  static herr_t set_end(H5FD_t* file, H5FD_mem_t, haddr_t end) {
    cast(file)->target->end_ = end;
    return 0;
  }
  // HDF5 asks how much can be read: what it allocated and never wrote reads as zeros.
  static haddr_t get_eof(const H5FD_t* file, H5FD_mem_t) { return cast(file)->target->end_; }
  static herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* out) {
    return cast(file)->target->read(address, out, size) ? 0 : -1;
  }
  static herr_t write(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t address, size_t size, const void* data) {
    cast(file)->target->write(type, address, data, size);
    return 0;
  }
  static herr_t nothing(H5FD_t*, hid_t, hbool_t) { return 0; }

  static hid_t id() {
    static const hid_t driver = [] {
      static H5FD_class_t cls{};
#ifdef H5FD_CLASS_VERSION
      cls.version = H5FD_CLASS_VERSION;
      cls.value = static_cast<H5FD_class_value_t>(600);
#endif
      cls.name = "h3diff_commit";
      cls.maxaddr = max_address;
      cls.fc_degree = H5F_CLOSE_STRONG;
      cls.fapl_size = sizeof(CommitFile*);
      cls.open = open;
      cls.close = close;
      cls.cmp = compare;
      cls.query = query;
      cls.get_eoa = get_end;
      cls.set_eoa = set_end;
      cls.get_eof = get_eof;
      cls.read = read;
      cls.write = write;
      cls.flush = nothing;
      cls.truncate = nothing;
      constexpr H5FD_mem_t lists[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
      std::copy(std::begin(lists), std::end(lists), std::begin(cls.fl_map));
      return H5FDregister(&cls);
    }();
    return driver;
  }
};

Result<std::unique_ptr<CommitFile>> CommitFile::create(const std::string& path) {
  std::unique_ptr<CommitFile> file(new CommitFile);
  file->path_ = path;
  file->fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file->fd_ < 0)
    return file_error(path, errno);
  // A lock on the open file, not on the process: it dies with its writer, and a stale file has none.
  // (HDF5 takes flock() locks, which do not meet these, so that others can read the file meanwhile.)
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  struct stat opened {
  }, named{};
  if (fcntl(file->fd_, F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES)
      return usage_error(fmt::format("{} is being written by another run", path));
  } else if (fstat(file->fd_, &opened) != 0 || stat(path.c_str(), &named) != 0 || opened.st_ino != named.st_ino) {
    return usage_error(fmt::format("{} is being written by another run", path)); // renamed since it was opened
  }
  if (ftruncate(file->fd_, 0) != 0)
    return file_error(path, errno);
  return file;
}

CommitFile::~CommitFile() {
  if (fd_ >= 0)
    ::close(fd_);
}

Handle CommitFile::access_list() {
  Handle list = list_handle(H5Pcreate(H5P_FILE_ACCESS));
  CommitFile* self = this;
  if (CommitDriver::id() < 0 || H5Pset_driver(list.get(), CommitDriver::id(), &self) < 0)
    return {};
  return list;
}

bool CommitFile::put(std::uint64_t address, const unsigned char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t done = pwrite(fd_, data, size, static_cast<off_t>(address));
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0) {
      error_ = done < 0 ? errno : ENOSPC;
      return false;
    }
    data += done;
    address += static_cast<std::uint64_t>(done);
    size -= static_cast<std::size_t>(done);
  }
  return true;
}

void CommitFile::write_through(std::uint64_t address, const void* data, std::size_t size) {
  if (error_ == 0)
    put(address, static_cast<const unsigned char*>(data), size);
}

void CommitFile::write(H5FD_mem_t type, std::uint64_t address, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (address >= committed_) {
    write_through(address, data, size);
    return;
  }
  // Later bytes win: shorten or drop what they cover.
  const std::uint64_t end = address + size;
  auto at = held_.upper_bound(address);
  if (at != held_.begin())
    --at;
  while (at != held_.end() && at->first < end) {
    const std::uint64_t begin = at->first, stop = begin + at->second.bytes.size();
    if (stop <= address) {
      ++at;
      continue;
    }
    Held old = std::move(at->second);
    at = held_.erase(at);
    if (begin < address)
      held_[begin] = {old.type, {old.bytes.begin(), old.bytes.begin() + static_cast<std::ptrdiff_t>(address - begin)}};
    if (stop > end)
      held_[end] = {old.type, {old.bytes.begin() + static_cast<std::ptrdiff_t>(end - begin), old.bytes.end()}};
  }
  held_[address] = {type, {bytes, bytes + size}};
}

bool CommitFile::read(std::uint64_t address, void* data, std::size_t size) const {
  auto* out = static_cast<unsigned char*>(data);
  std::memset(out, 0, size);
  for (std::size_t have = 0; have < size;) {
    const ssize_t got = pread(fd_, out + have, size - have, static_cast<off_t>(address + have));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return false;
    if (got == 0)
      break;
    have += static_cast<std::size_t>(got);
  }
  const std::uint64_t end = address + size;
  for (const auto& [begin, held] : held_) {
    const std::uint64_t stop = begin + held.bytes.size();
    const std::uint64_t from = std::max(begin, address), to = std::min(stop, end);
    if (from < to)
      std::memcpy(out + (from - address), held.bytes.data() + (from - begin), to - from);
  }
  return true;
}

// The place of a held write in the order that the header describes.
int CommitFile::rank(std::uint64_t address, const Held& held) const {
  const auto signature = [&](const char* text) {
    return held.bytes.size() > 8 && std::memcmp(held.bytes.data(), text, 4) == 0;
  };
  if (const auto at = std::find(last_.begin(), last_.end(), address); at != last_.end())
    return 1000 + static_cast<int>(at - last_.begin());
  switch (held.type) {
  case H5FD_MEM_DRAW: return 0;
  case H5FD_MEM_SUPER: return 1;
  case H5FD_MEM_LHEAP: return 2;
  case H5FD_MEM_BTREE: // byte 5 of a node is its level; the root has the highest
    return signature("TREE") ? 300 - held.bytes[5] : 500;
  default: return 600;
  }
}

bool CommitFile::apply(std::uint64_t address, const Held& held) {
  std::vector<unsigned char> old(held.bytes.size());
  std::size_t begin = 0, end = held.bytes.size();
  if (pread(fd_, old.data(), old.size(), static_cast<off_t>(address)) == static_cast<ssize_t>(old.size())) {
    while (begin < end && old[begin] == held.bytes[begin])
      ++begin;
    while (end > begin && old[end - 1] == held.bytes[end - 1])
      --end;
  }
  if (begin == end)
    return true;
  if (writes_left == 0)
    return true;
  if (writes_left > 0)
    --writes_left;
  return put(address + begin, held.bytes.data() + begin, end - begin);
}

Result<void> CommitFile::commit() {
  if (error_ != 0)
    return failure();
  struct stat info {};
  // HDF5 refuses a file that is shorter than its superblock says.
  if (fstat(fd_, &info) != 0 ||
      (static_cast<std::uint64_t>(info.st_size) < end_ && ftruncate(fd_, static_cast<off_t>(end_)) != 0)) {
    error_ = errno;
    return failure();
  }
  std::vector<std::map<std::uint64_t, Held>::const_iterator> order;
  for (auto at = held_.cbegin(); at != held_.cend(); ++at)
    order.push_back(at);
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return rank(a->first, a->second) < rank(b->first, b->second); });
  for (const auto& at : order)
    if (!apply(at->first, at->second))
      return failure();
  held_.clear();
  committed_ = end_;
  return {};
}

Result<void> CommitFile::sync() {
  if (error_ == 0 && fsync(fd_) != 0)
    error_ = errno;
  return failure();
}

Result<void> CommitFile::failure() const {
  if (error_ != 0)
    return file_error(path_, error_);
  return {};
}

} // namespace h3diff::probes
