#include "scan_transfer.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>

namespace h3diff::probes {
namespace {

bool read_at(int fd, std::uint64_t offset, void* out, std::size_t size) {
  auto* bytes = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = pread(fd, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    bytes += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

void append(std::string& out, const void* data, std::size_t size) { out.append(static_cast<const char*>(data), size); }

void append_text(std::string& out, std::string_view text) {
  const std::uint64_t size = text.size();
  append(out, &size, sizeof size);
  out.append(text);
}

template <class T> bool take(std::string_view& in, T& value) {
  if (in.size() < sizeof value)
    return false;
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return true;
}

bool take_text(std::string_view& in, std::string& text) {
  std::uint64_t size = 0;
  if (!take(in, size) || in.size() < size)
    return false;
  text.assign(in.substr(0, size));
  in.remove_prefix(size);
  return true;
}

std::optional<RunFacts> decode_facts(std::string_view in) {
  RunFacts facts;
  while (!in.empty()) {
    std::string name, text;
    std::uint8_t kind = 0;
    if (!take_text(in, name) || !take(in, kind))
      return std::nullopt;
    std::int64_t integer = 0;
    double number = 0;
    if (kind == 0 && take_text(in, text))
      facts[name] = text;
    else if (kind == 1 && take(in, integer))
      facts[name] = integer;
    else if (kind == 2 && take(in, number))
      facts[name] = number;
    else
      return std::nullopt;
  }
  return facts;
}

template <class Record>
bool read_records(int fd, std::uint64_t offset, std::uint64_t size, std::vector<Record>& records) {
  static_assert(std::is_trivially_copyable_v<Record>);
  if (size % sizeof(Record) != 0)
    return false;
  records.resize(size / sizeof(Record));
  return records.empty() || read_at(fd, offset, records.data(), size);
}

bool read_text(int fd, std::uint64_t offset, std::uint64_t size, std::string& text) {
  text.resize(size);
  return read_at(fd, offset, text.data(), size);
}

} // namespace

std::string encode_facts(const RunFacts& facts) {
  std::string out;
  for (const auto& [name, fact] : facts) {
    append_text(out, name);
    const auto kind = static_cast<std::uint8_t>(fact.index());
    append(out, &kind, 1);
    if (const auto* text = std::get_if<std::string>(&fact))
      append_text(out, *text);
    else if (const auto* integer = std::get_if<std::int64_t>(&fact))
      append(out, integer, sizeof *integer);
    else
      append(out, &std::get<double>(fact), sizeof(double));
  }
  return out;
}

Result<Scan> read_scan(int fd, const std::string& path) {
  const Error broken = bad_input(fmt::format("{} is damaged: the HDF5 library cannot make sense of it", path));
  const off_t end = lseek(fd, 0, SEEK_END);
  Scan scan;
  for (std::uint64_t at = 0;;) {
    Section tag{};
    std::uint64_t size = 0;
    if (!read_at(fd, at, &tag, sizeof tag) || !read_at(fd, at + sizeof tag, &size, sizeof size))
      return broken;
    at += sizeof tag + sizeof size;
    if (end < 0 || size > static_cast<std::uint64_t>(end) - at)
      return broken;
    bool ok = true;
    switch (tag) {
    case Section::done: return scan;
    case Section::error: {
      std::string message;
      return read_text(fd, at, size, message) ? bad_input(message) : broken;
    }
    case Section::facts: {
      std::string text;
      ok = read_text(fd, at, size, text);
      auto facts = decode_facts(text);
      ok = ok && facts;
      if (ok)
        scan.facts = *std::move(facts);
      break;
    }
    case Section::index: ok = read_records(fd, at, size, scan.index); break;
    case Section::columns: ok = read_records(fd, at, size, scan.columns); break;
    case Section::dispatch: ok = read_records(fd, at, size, scan.dispatch); break;
    case Section::steps: ok = read_records(fd, at, size, scan.steps); break;
    case Section::unobserved: ok = read_records(fd, at, size, scan.unobserved); break;
    case Section::tensors: ok = read_records(fd, at, size, scan.tensors); break;
    case Section::sketch64:
    case Section::sketch128:
    case Section::sketch256: {
      const auto slot = static_cast<std::size_t>(tag) - static_cast<std::size_t>(Section::sketch64);
      const std::uint64_t row = sizeof(float) * static_cast<std::uint64_t>(sketch_sizes[slot]);
      ok = size % row == 0;
      scan.sketches[slot] = {at, static_cast<std::int64_t>(size / row)};
      break;
    }
    default: ok = false;
    }
    if (!ok)
      return broken;
    at += size;
  }
}

} // namespace h3diff::probes
