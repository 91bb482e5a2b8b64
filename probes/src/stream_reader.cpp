#include "h3diff/probes/stream.hpp"
#include "stream_format.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <map>
#include <set>
#include <unordered_map>

namespace h3diff::probes {

using namespace stream;

std::uint32_t stream::crc32(std::uint32_t crc, std::span<const unsigned char> bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> out{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320u : value >> 1;
      out[i] = value;
    }
    return out;
  }();
  crc = ~crc;
  for (const unsigned char byte : bytes)
    crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8;
  return ~crc;
}

namespace {

constexpr std::int64_t max_elements = std::int64_t{1} << 50, max_kept_rows = std::int64_t{1} << 31;

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

class Descriptor {
public:
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0)
      close(fd);
  }
  int fd = -1;
};

// A probe's name becomes part of a path in the dump.
bool good_probe_name(const std::string& probe) {
  return !probe.empty() && probe.size() <= probe_limit && std::isalnum(static_cast<unsigned char>(probe[0])) != 0 &&
         std::all_of(probe.begin(), probe.end(), [](char c) { return c > ' ' && c < 0x7F && c != '/'; });
}

bool good_text(const std::string& text, std::size_t least, std::size_t most) {
  return text.size() >= least && text.size() <= most && text.find('\0') == std::string::npos;
}

struct Columns {
  std::uint32_t total = 0;
  std::vector<ColumnMeasurement> measured;
};

} // namespace

struct StreamReader::Impl {
  std::string path;
  Descriptor file;
  std::uint64_t size = 0;
  RunFacts facts;
  bool finished = false;
  std::vector<IndexRow> index; // sketch_row: index into sketch_offsets
  std::vector<StepRow> steps;
  std::vector<DispatchRow> dispatch;
  std::vector<Unobserved> unobserved;
  std::map<std::string, Columns> columns;
  std::vector<std::uint64_t> sketch_offsets;
  std::unordered_map<std::string, StreamTensor> tensors;
  std::unordered_map<std::string, std::size_t> rows; // by key, index into `index`
  std::set<std::int32_t> begun;                      // steps that have rows and no end yet
  std::int32_t last_step = -2;
  std::vector<std::int32_t> dropped;
  std::optional<StreamDamage> damage;
  std::int64_t records = 0, unknown = 0;
  std::uint64_t at = 0; // offset of the record at hand

  template <class... Args> Error refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return bad_input(fmt::format("{}: the record at byte {} ", path, at) +
                     fmt::format(format, std::forward<Args>(args)...));
  }

  static std::string key(std::int32_t step, const std::string& probe, Segment segment) {
    return fmt::format("{}/{}/{}", step, probe, name(segment));
  }

  Result<void> read();
  Result<void> record(std::uint32_t tag, std::span<const unsigned char> payload);
  Result<void> fact(Payload in);
  Result<void> measurement(Payload in);
  Result<void> column_batch(Payload in);
  Result<void> tensor_rows(Payload in);
  Result<void> step(Payload in);
  Result<void> dispatch_row(Payload in);
  Result<void> unobserved_row(Payload in);
  Result<void> complete();
  bool open_step(std::int32_t step) const { return step >= -1 && step > last_step; }
};

Result<void> StreamReader::Impl::fact(Payload in) {
  const auto type = in.take<std::uint8_t>();
  static_cast<void>(in.take<std::uint8_t>());
  const std::string fact_name = in.text(in.take<std::uint16_t>());
  if (!in.ok() || !good_text(fact_name, 1, fact_name_limit))
    return refuse("is a fact without a proper name");
  if (type == 0) {
    std::string text = in.text(in.left());
    if (!good_text(text, 0, fact_text_limit))
      return refuse("gives the fact {} a text of {} bytes, or one with a NUL", printable(fact_name), text.size());
    facts[fact_name] = std::move(text);
    return {};
  }
  if (type > 2 || in.left() != 8)
    return refuse("gives the fact {} an unknown type", printable(fact_name));
  if (type == 1)
    facts[fact_name] = in.take<std::int64_t>();
  else
    facts[fact_name] = in.take<double>();
  return {};
}

Result<void> StreamReader::Impl::measurement(Payload in) {
  IndexRow row;
  row.step = in.take<std::int32_t>();
  const int segment = in.take<std::uint8_t>(), dtype = in.take<std::uint8_t>(), stored = in.take<std::uint8_t>(),
            level = in.take<std::uint8_t>();
  row.rows = in.take<std::int64_t>();
  row.cols = in.take<std::int64_t>();
  row.digest.a = in.take<std::uint64_t>();
  row.digest.b = in.take<std::uint64_t>();
  Statistics& s = row.statistics;
  for (std::int64_t* count : {&s.zeros, &s.nan, &s.inf, &s.subnormal})
    *count = in.take<std::int64_t>();
  for (double* value : {&s.mean, &s.std, &s.l2, &s.min, &s.max, &s.absmax})
    *value = in.take<double>();
  s.absmax_row = in.take<std::int64_t>();
  s.absmax_col = in.take<std::int64_t>();
  row.cosine = in.take<double>();
  for (float& band : s.row_bands)
    band = in.take<float>();
  for (float& group : s.col_groups)
    group = in.take<float>();
  row.sketch_k = in.take<std::uint16_t>();
  row.probe = in.text(in.take<std::uint16_t>());

  if (!in.ok() || in.left() != static_cast<std::size_t>(row.sketch_k) * 4)
    return refuse("has a length that does not fit");
  if (!good_probe_name(row.probe))
    return refuse("names the probe '{}'", printable(row.probe));
  if (segment > static_cast<int>(Segment::video))
    return refuse("has the segment code {}", segment);
  if (dtype < 1 || dtype > dtype_count || stored < 1 || stored > dtype_count)
    return refuse("has the dtype codes {} and {}", dtype, stored);
  if (level < 1 || level > 4)
    return refuse("has the level code {}", level);
  if (row.sketch_k != 0 && row.sketch_k != 64 && row.sketch_k != 128 && row.sketch_k != 256)
    return refuse("has a sketch of {} buckets", row.sketch_k);
  row.segment = static_cast<Segment>(segment);
  row.dtype = static_cast<DType>(dtype - 1);
  row.stored_dtype = static_cast<DType>(stored - 1);
  row.level = static_cast<Level>(level);
  if (!open_step(row.step))
    return refuse("is of step {}, after step {} has ended", row.step, last_step);
  if (row.rows < 0 || row.cols < 0 || row.rows > max_elements || row.cols > max_elements ||
      (row.cols > 0 && row.rows > max_elements / row.cols))
    return refuse("has the shape {} x {}", row.rows, row.cols);
  const std::int64_t elements = row.rows * row.cols;
  for (const std::int64_t count : {s.zeros, s.nan, s.inf, s.subnormal})
    if (count < 0 || count > elements)
      return refuse("counts {} of {} elements", count, elements);
  if (s.absmax_row < -1 || s.absmax_row >= std::max<std::int64_t>(row.rows, 1) || s.absmax_col < -1 ||
      s.absmax_col >= std::max<std::int64_t>(row.cols, 1))
    return refuse("has its absmax at ({}, {}) of a {} x {} tensor", s.absmax_row, s.absmax_col, row.rows, row.cols);
  if (row.level == Level::digest && row.sketch_k != 0)
    return refuse("has a sketch at level digest");
  s.count = row.level == Level::digest ? 0 : elements;
  if (row.sketch_k > 0) {
    row.sketch_row = static_cast<std::int64_t>(sketch_offsets.size());
    sketch_offsets.push_back(at + 8 + in.position());
  }
  if (!rows.emplace(key(row.step, row.probe, row.segment), index.size()).second)
    return refuse("repeats step {}, probe {}, segment {}", row.step, printable(row.probe), name(row.segment));
  if (row.step >= 0)
    begun.insert(row.step);
  index.push_back(std::move(row));
  return {};
}

Result<void> StreamReader::Impl::column_batch(Payload in) {
  const auto first = in.take<std::uint32_t>(), count = in.take<std::uint32_t>(), total = in.take<std::uint32_t>();
  const std::string probe = in.text(in.take<std::uint16_t>());
  if (!in.ok() || count == 0 || in.left() != std::uint64_t{count} * 88)
    return refuse("has a length that does not fit");
  if (!good_probe_name(probe))
    return refuse("names the probe '{}'", printable(probe));
  if (total > max_payload || first > total || count > total - first)
    return refuse("has columns {} to {} of {}", first, std::uint64_t{first} + count, total);
  if (!open_step(-1))
    return refuse("has columns of weights, after step {} has ended", last_step);
  Columns& of_probe = columns[probe];
  if (of_probe.measured.empty())
    of_probe.total = total;
  if (of_probe.total != total || first != of_probe.measured.size())
    return refuse("has columns from {} of {} of {}, after {} of {}", first, total, printable(probe),
                  of_probe.measured.size(), of_probe.total);
  for (std::uint32_t i = 0; i < count; ++i) {
    ColumnMeasurement& column = of_probe.measured.emplace_back();
    column.column = static_cast<std::int32_t>(first + i);
    column.digest.a = in.take<std::uint64_t>();
    column.digest.b = in.take<std::uint64_t>();
    for (std::int64_t* number : {&column.zeros, &column.nan, &column.inf}) {
      *number = in.take<std::int64_t>();
      if (*number < 0)
        return refuse("has a negative count");
    }
    for (double* value : {&column.mean, &column.std, &column.l2, &column.min, &column.max, &column.absmax})
      *value = in.take<double>();
  }
  return {};
}

Result<void> StreamReader::Impl::tensor_rows(Payload in) {
  const auto step = in.take<std::int32_t>();
  const int segment = in.take<std::uint8_t>(), dtype = in.take<std::uint8_t>();
  const auto length = in.take<std::uint16_t>();
  const auto total = in.take<std::int64_t>(), cols = in.take<std::int64_t>(), sampled_of = in.take<std::int64_t>();
  const auto first = in.take<std::int64_t>(), count = in.take<std::int64_t>();
  const std::string probe = in.text(length);
  if (!in.ok() || segment > static_cast<int>(Segment::video) || dtype < 1 || dtype > dtype_count)
    return refuse("is a tensor without proper codes");
  const std::string row_key = key(step, probe, static_cast<Segment>(segment));
  const auto found = rows.find(row_key);
  if (found == rows.end())
    return refuse("is a tensor of {}, which has not been measured", printable(row_key));
  const IndexRow& row = index[found->second];
  if (!open_step(step))
    return refuse("is of step {}, after step {} has ended", step, last_step);
  if (row.level != Level::rows && row.level != Level::full)
    return refuse("is a tensor of {}, whose level is {}", printable(row_key), name(row.level));
  const auto type = static_cast<DType>(dtype - 1);
  if (type != row.dtype && type != row.stored_dtype)
    return refuse("is a {} tensor of {}, which is {}", name(type), printable(row_key), name(row.dtype));
  if (total < 1 || cols < 1 || cols != row.cols || sampled_of < 0 || total > row.rows || row.rows > max_kept_rows ||
      (sampled_of > 0 ? sampled_of : total) != row.rows)
    return refuse("is a {} x {} tensor (sampled of {}) of {}, which is {} x {}", total, cols, sampled_of,
                  printable(row_key), row.rows, row.cols);
  StreamTensor& tensor = tensors[row_key];
  std::int64_t there = 0;
  if (tensor.pieces_.empty()) {
    tensor.dtype = type;
    tensor.rows = total;
    tensor.cols = cols;
    tensor.sampled_of = sampled_of;
    tensor.fd_ = file.fd;
    tensor.label_ = fmt::format("{}: the tensor {}", path, printable(row_key));
  } else {
    there = tensor.pieces_.back().first + tensor.pieces_.back().rows;
  }
  if (tensor.dtype != type || tensor.rows != total || tensor.sampled_of != sampled_of || first != there || count < 1 ||
      count > total - first)
    return refuse("has rows {} to {} of {}, which do not follow", first, first + count, printable(row_key));
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(cols) * item_size(type);
  if (static_cast<std::uint64_t>(count) > max_payload || in.left() != row_bytes * static_cast<std::uint64_t>(count))
    return refuse("has a length that does not fit");
  tensor.pieces_.push_back({first, count, at + 8 + in.position()});
  return {};
}

Result<void> StreamReader::Impl::step(Payload in) {
  StepRow row;
  row.step = in.take<std::int32_t>();
  for (double* sigma : {&row.sigma_video, &row.sigma_audio, &row.sigma_video_next, &row.sigma_audio_next})
    *sigma = in.take<double>();
  if (!in.ok() || in.left() != 0)
    return refuse("has a length that does not fit");
  if (!open_step(row.step))
    return refuse("ends step {}, after step {} has ended", row.step, last_step);
  last_step = row.step;
  begun.erase(row.step);
  if (row.step >= 0)
    steps.push_back(row);
  return {};
}

Result<void> StreamReader::Impl::dispatch_row(Payload in) {
  DispatchRow row;
  row.calls = in.take<std::int64_t>();
  row.fallbacks = in.take<std::int64_t>();
  const std::size_t a = in.take<std::uint16_t>(), b = in.take<std::uint16_t>(), c = in.take<std::uint16_t>();
  row.op = in.text(a);
  row.implementation = in.text(b);
  row.declared = in.text(c);
  if (!in.ok() || in.left() != 0)
    return refuse("has a length that does not fit");
  if (!good_text(row.op, 1, op_limit) || !good_text(row.implementation, 1, implementation_limit) ||
      !good_text(row.declared, 0, implementation_limit))
    return refuse("has an op or implementation name that is empty or too long");
  if (row.calls < 0 || row.fallbacks < 0 || row.fallbacks > row.calls)
    return refuse("counts {} calls and {} fallbacks", row.calls, row.fallbacks);
  const auto same = std::find_if(dispatch.begin(), dispatch.end(), [&](const DispatchRow& other) {
    return other.op == row.op && other.implementation == row.implementation && other.declared == row.declared;
  });
  if (same != dispatch.end())
    *same = std::move(row);
  else if (dispatch.size() >= 4096)
    return refuse("is one of more than 4096 dispatch rows");
  else
    dispatch.push_back(std::move(row));
  return {};
}

Result<void> StreamReader::Impl::unobserved_row(Payload in) {
  Unobserved row;
  const std::size_t a = in.take<std::uint16_t>(), b = in.take<std::uint16_t>();
  row.probe = in.text(a);
  row.reason = in.text(b);
  if (!in.ok() || in.left() != 0)
    return refuse("has a length that does not fit");
  if (!good_text(row.probe, 1, probe_limit) || !good_text(row.reason, 1, reason_limit))
    return refuse("has an unobserved probe's name or reason that is empty or too long");
  unobserved.push_back(std::move(row));
  return {};
}

Result<void> StreamReader::Impl::record(std::uint32_t tag_of, std::span<const unsigned char> payload) {
  const Payload in(payload);
  switch (tag_of) {
  case tag("FACT"): return fact(in);
  case tag("MEAS"): return measurement(in);
  case tag("COLS"): return column_batch(in);
  case tag("TENS"): return tensor_rows(in);
  case tag("STEP"): return step(in);
  case tag("DISP"): return dispatch_row(in);
  case tag("UNOB"): return unobserved_row(in);
  case tag("END "):
    if (!payload.empty())
      return refuse("ends the run and has a payload");
    finished = true;
    return {};
  default: ++unknown; return {};
  }
}

Result<void> StreamReader::Impl::read() {
  std::vector<unsigned char> bytes(header_bytes);
  if (size < header_bytes)
    return bad_input(fmt::format("{} is cut within its header of 16 bytes", path));
  if (!read_at(file.fd, 0, bytes.data(), header_bytes))
    return bad_input(fmt::format("{} cannot be read", path));
  Payload header(bytes);
  if (!std::equal(magic.begin(), magic.end(), bytes.begin()))
    return bad_input(fmt::format("{} is not a probe stream", path));
  static_cast<void>(header.take<std::uint64_t>());
  const auto found_version = header.take<std::uint32_t>();
  if (found_version != version)
    return bad_input(
        fmt::format("{} is a probe stream of version {}; this program reads version {}", path, found_version, version));
  if (header.take<std::uint32_t>() != 0)
    return bad_input(fmt::format("{} has a damaged header", path));

  const auto stop = [&](const char* reason) { damage = StreamDamage{at, size - at, reason}; };
  // Small records are read through one buffer: a stream has tens of thousands of them.
  std::vector<unsigned char> buffer(std::size_t{1} << 20);
  std::uint64_t buffer_at = 0;
  std::size_t buffered = 0;
  const auto get = [&](std::uint64_t offset, std::size_t count) -> const unsigned char* {
    if (offset < buffer_at || offset + count > buffer_at + buffered) {
      if (count > buffer.size())
        buffer.resize(count); // at most a frame and 2^24, and the file has them
      buffer_at = offset;
      buffered = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - offset));
      if (!read_at(file.fd, offset, buffer.data(), buffered))
        return nullptr;
    }
    return buffer.data() + (offset - buffer_at);
  };

  for (at = header_bytes; at < size;) {
    if (finished) {
      stop("it stands after the end record");
      break;
    }
    if (size - at < frame_bytes) {
      stop("the file ends in it");
      break;
    }
    const unsigned char* frame = get(at, 8);
    if (frame == nullptr)
      return bad_input(fmt::format("{} cannot be read at byte {}", path, at));
    std::uint32_t tag_of, length;
    std::memcpy(&tag_of, frame, 4);
    std::memcpy(&length, frame + 4, 4);
    if (length > max_payload) {
      stop("its length is beyond the format's limit");
      break;
    }
    if (length > size - at - frame_bytes) {
      stop("the file ends in it");
      break;
    }
    frame = get(at, frame_bytes + length);
    if (frame == nullptr)
      return bad_input(fmt::format("{} cannot be read at byte {}", path, at));
    std::uint32_t crc;
    std::memcpy(&crc, frame + 8 + length, 4);
    if (crc != crc32(0, {frame, 8 + std::size_t{length}})) {
      stop("its CRC does not match");
      break;
    }
    ++records;
    if (auto ok = record(tag_of, {frame + 8, length}); !ok)
      return ok;
    at += frame_bytes + length;
  }
  return complete();
}

// Drops what was cut off, and refuses what a whole step lacks.
Result<void> StreamReader::Impl::complete() {
  dropped.assign(begun.begin(), begun.end());
  std::erase_if(index, [&](const IndexRow& row) { return begun.contains(row.step); });
  for (IndexRow& row : index) {
    if (row.level != Level::rows && row.level != Level::full)
      continue;
    const std::string row_key = key(row.step, row.probe, row.segment);
    const auto found = tensors.find(row_key);
    const bool whole = found != tensors.end() &&
                       found->second.pieces_.back().first + found->second.pieces_.back().rows == found->second.rows;
    if (whole)
      continue;
    if (last_step >= row.step)
      return bad_input(
          fmt::format("{}: the tensor of {} is not all there, though its step is complete", path, printable(row_key)));
    tensors.erase(row_key);
    row.level = Level::stats; // a weight whose tensor was cut off
  }
  std::erase_if(columns, [](const auto& entry) { return entry.second.measured.size() != entry.second.total; });
  for (const IndexRow& row : index)
    if (const auto found = columns.find(row.probe);
        found != columns.end() && static_cast<std::int64_t>(found->second.total) != row.cols)
      return bad_input(fmt::format("{}: {} has {} columns in one record and {} in another", path, printable(row.probe),
                                   found->second.total, row.cols));
  return {};
}

StreamReader::StreamReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StreamReader::StreamReader(StreamReader&&) noexcept = default;
StreamReader& StreamReader::operator=(StreamReader&&) noexcept = default;
StreamReader::~StreamReader() = default;

Result<StreamReader> StreamReader::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // not to wait for a pipe's other end
  struct stat info {};
  if (impl->file.fd < 0 || fstat(impl->file.fd, &info) != 0)
    return bad_input(fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
  if (!S_ISREG(info.st_mode))
    return bad_input(fmt::format("{} is not a file", path));
  impl->size = static_cast<std::uint64_t>(info.st_size);
  if (auto ok = impl->read(); !ok)
    return ok.error();
  return StreamReader(std::move(impl));
}

const std::string& StreamReader::path() const { return impl_->path; }
const RunFacts& StreamReader::facts() const { return impl_->facts; }
bool StreamReader::finished() const { return impl_->finished; }
const std::vector<IndexRow>& StreamReader::index() const { return impl_->index; }
const std::vector<StepRow>& StreamReader::steps() const { return impl_->steps; }
const std::vector<DispatchRow>& StreamReader::dispatch() const { return impl_->dispatch; }
const std::vector<Unobserved>& StreamReader::unobserved() const { return impl_->unobserved; }
const std::optional<StreamDamage>& StreamReader::damage() const { return impl_->damage; }
std::int64_t StreamReader::records() const { return impl_->records; }
std::int64_t StreamReader::unknown_records() const { return impl_->unknown; }

std::string StreamReader::fact(const std::string& name, const std::string& otherwise) const {
  const auto found = impl_->facts.find(name);
  if (found == impl_->facts.end())
    return otherwise;
  return std::visit([](const auto& value) { return fmt::format("{}", value); }, found->second);
}

std::vector<std::string> StreamReader::column_probes() const {
  std::vector<std::string> out;
  for (const auto& [probe, columns] : impl_->columns)
    out.push_back(probe);
  return out;
}

std::vector<ColumnMeasurement> StreamReader::columns(const std::string& probe) const {
  const auto found = impl_->columns.find(probe);
  return found == impl_->columns.end() ? std::vector<ColumnMeasurement>() : found->second.measured;
}

Result<std::vector<float>> StreamReader::sketch(const IndexRow& row) const {
  std::vector<float> values(static_cast<std::size_t>(std::clamp(row.sketch_k, 0, 256)));
  if (values.empty())
    return values;
  if (row.sketch_row < 0 || row.sketch_row >= static_cast<std::int64_t>(impl_->sketch_offsets.size()) ||
      !read_at(impl_->file.fd, impl_->sketch_offsets[static_cast<std::size_t>(row.sketch_row)], values.data(),
               values.size() * sizeof(float)))
    return bad_input(fmt::format("{}: the sketch of {} cannot be read", impl_->path, printable(row.probe)));
  return values;
}

Result<std::optional<StreamTensor>> StreamReader::tensor(const IndexRow& row) const {
  const auto found = impl_->tensors.find(Impl::key(row.step, row.probe, row.segment));
  if (found == impl_->tensors.end())
    return std::optional<StreamTensor>();
  return std::optional<StreamTensor>(found->second);
}

std::vector<std::string> StreamReader::notes() const {
  std::vector<std::string> out;
  const Impl& impl = *impl_;
  if (impl.damage)
    out.push_back(fmt::format("{}: the record at byte {} is damaged ({}); it and what follows, {} bytes, was ignored",
                              impl.path, impl.damage->offset, impl.damage->reason, impl.damage->bytes));
  for (const std::int32_t step : impl.dropped)
    out.push_back(fmt::format("{}: step {} was cut off and left out", impl.path, step));
  if (!impl.finished)
    out.push_back(fmt::format("{}: the run did not end normally, its end record is missing", impl.path));
  if (impl.unknown > 0)
    out.push_back(
        fmt::format("{}: {} records of a kind that this version does not know were skipped", impl.path, impl.unknown));
  return out;
}

Result<void> StreamTensor::read_rows(std::int64_t begin, std::int64_t count, void* out) const {
  if (begin < 0 || count < 0 || begin > rows || count > rows - begin)
    return Error{ExitCode::internal,
                 fmt::format("{}: rows {} to {} of {} were asked for", label_, begin, begin + count, rows)};
  const std::size_t row_bytes = static_cast<std::size_t>(cols) * item_size(dtype);
  auto* to = static_cast<unsigned char*>(out);
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                [](std::int64_t row, const Piece& p) { return row < p.first + p.rows; });
  for (; count > 0; ++piece) {
    const std::int64_t skip = begin - piece->first, part = std::min(count, piece->rows - skip);
    if (!read_at(fd_, piece->offset + static_cast<std::uint64_t>(skip) * row_bytes, to,
                 static_cast<std::size_t>(part) * row_bytes))
      return bad_input(fmt::format("{} cannot be read at rows {} to {}", label_, begin, begin + part));
    to += static_cast<std::size_t>(part) * row_bytes;
    begin += part;
    count -= part;
  }
  return {};
}

bool is_stream(const std::string& path) {
  Descriptor file;
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  std::array<unsigned char, magic.size()> head{};
  return file.fd >= 0 && read_at(file.fd, 0, head.data(), head.size()) && head == magic;
}

} // namespace h3diff::probes
