#include "guarded.hpp"
#include "h3diff/probes/dump.hpp"
#include "known_facts.hpp"
#include "scan_transfer.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace h3diff::probes {
namespace {

std::string row_key(std::int32_t step, std::string_view probe, std::string_view segment) {
  return fmt::format("{}/{}/{}", step, probe, segment);
}

std::string row_key(const IndexRow& row) { return row_key(row.step, row.probe, name(row.segment)); }

std::optional<Level> parse_level(std::string_view text) {
  for (const Level level : {Level::digest, Level::stats, Level::rows, Level::full})
    if (name(level) == text)
      return level;
  return std::nullopt;
}

bool read_at(int fd, std::uint64_t offset, void* out, std::uint64_t size) {
  auto* bytes = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = pread(fd, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    bytes += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::uint64_t>(got);
  }
  return true;
}

std::size_t sketch_slot(int k) {
  return static_cast<std::size_t>(std::find(std::begin(sketch_sizes), std::end(sketch_sizes), k) -
                                  std::begin(sketch_sizes));
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

} // namespace

struct DumpReader::Impl {
  std::string path;
  Descriptor file, hand_over;
  RunFacts facts;
  bool finished = false;
  std::vector<IndexRow> index;
  std::vector<StepRow> steps;
  std::vector<DispatchRow> dispatch;
  std::vector<Unobserved> unobserved;
  std::unordered_map<std::string, std::vector<ColumnMeasurement>> columns;
  Scan::Sketches sketches[3];
  std::unordered_map<std::string, TensorRecord> tensors;

  template <class... Args> Error refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return bad_input(path + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  Result<void> take(Scan scan);
  Result<void> take_facts(RunFacts scanned);
  Result<void> take_steps(const std::vector<StepRecord>& records);
  Result<void> take_index(const std::vector<IndexRecord>& records);
  Result<IndexRow> index_row(const IndexRecord& record, std::size_t number) const;
  Result<void> check_statistics(const IndexRow& row, std::size_t number) const;
  Result<void> take_columns(const std::vector<ColumnRecord>& records);
  Result<void> take_tensors(const std::vector<TensorRecord>& records);
  Result<void> check_tensor(const IndexRow& row) const;
};

Result<void> DumpReader::Impl::take_facts(RunFacts scanned) {
  facts = std::move(scanned);
  for (const auto& [known, kind] : known_facts) {
    const auto found = facts.find(std::string(known));
    if (found == facts.end())
      continue;
    const bool right = kind == FactKind::text ? std::holds_alternative<std::string>(found->second)
                                              : std::holds_alternative<std::int64_t>(found->second);
    if (!right)
      return refuse("the run fact {} is not {}", known, kind == FactKind::text ? "a string" : "an integer");
  }
  const auto found = facts.find("finished");
  finished = found != facts.end() && std::get<std::int64_t>(found->second) == 1;
  return {};
}

Result<void> DumpReader::Impl::take_steps(const std::vector<StepRecord>& records) {
  std::set<std::int32_t> seen;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const StepRecord& record = records[i];
    if (record.step < 0)
      return refuse("row {} of /steps is step {}", i, record.step);
    if (!seen.insert(record.step).second)
      return refuse("row {} of /steps repeats step {}", i, record.step);
    steps.push_back(
        {record.step, record.sigma_video, record.sigma_audio, record.sigma_video_next, record.sigma_audio_next});
  }
  return {};
}

Result<IndexRow> DumpReader::Impl::index_row(const IndexRecord& record, std::size_t number) const {
  IndexRow row;
  const auto wrong = [&](const char* column, std::string_view text) {
    return refuse("row {} of /index has {} '{}', which is not known", number, column, printable(text));
  };
  row.step = record.step;
  row.probe = std::string(field_text(record.probe));
  if (row.probe.empty())
    return refuse("row {} of /index names no probe", number);
  const auto segment = parse_segment(field_text(record.segment));
  if (!segment)
    return wrong("segment", field_text(record.segment));
  row.segment = *segment;
  const auto dtype = parse_dtype(field_text(record.dtype)), stored = parse_dtype(field_text(record.stored_dtype));
  if (!dtype)
    return wrong("dtype", field_text(record.dtype));
  if (!stored)
    return wrong("stored_dtype", field_text(record.stored_dtype));
  row.dtype = *dtype;
  row.stored_dtype = *stored;
  const auto digest = Digest::parse(field_text(record.digest));
  if (!digest)
    return refuse("row {} of /index has the digest '{}', which is not 32 lower-case hex digits", number,
                  printable(field_text(record.digest)));
  row.digest = *digest;
  const auto level = parse_level(field_text(record.level));
  if (!level)
    return wrong("level", field_text(record.level));
  row.level = *level;

  row.rows = record.rows;
  row.cols = record.cols;
  std::int64_t elements = 0, bytes = 0;
  if (row.rows < 0 || row.cols < 0 || __builtin_mul_overflow(row.rows, row.cols, &elements) ||
      __builtin_mul_overflow(elements, std::int64_t{8}, &bytes))
    return refuse("row {} of /index has the shape {} x {}", number, row.rows, row.cols);

  Statistics& s = row.statistics;
  s.zeros = record.zeros;
  s.nan = record.nan;
  s.inf = record.inf;
  s.subnormal = record.subnormal;
  s.mean = record.mean;
  s.std = record.std;
  s.l2 = record.l2;
  s.min = record.min;
  s.max = record.max;
  s.absmax = record.absmax;
  s.absmax_row = record.absmax_row;
  s.absmax_col = record.absmax_col;
  std::copy(std::begin(record.row_bands), std::end(record.row_bands), s.row_bands.begin());
  std::copy(std::begin(record.col_groups), std::end(record.col_groups), s.col_groups.begin());
  row.cosine = record.cosine;
  row.sketch_k = record.sketch_k;
  row.sketch_row = record.sketch_row;
  if (auto ok = check_statistics(row, number); !ok)
    return ok.error();
  s.count = row.level == Level::digest ? 0 : elements;
  return row;
}

Result<void> DumpReader::Impl::check_statistics(const IndexRow& row, std::size_t number) const {
  const Statistics& s = row.statistics;
  const std::int64_t elements = row.rows * row.cols; // index_row has seen that it fits
  for (const std::int64_t count : {s.zeros, s.nan, s.inf, s.subnormal})
    if (count < 0 || count > elements)
      return refuse("row {} of /index counts {} of {} elements", number, count, elements);
  if (s.absmax_row < -1 || s.absmax_row >= std::max<std::int64_t>(row.rows, 1) || s.absmax_col < -1 ||
      s.absmax_col >= std::max<std::int64_t>(row.cols, 1))
    return refuse("row {} of /index has its absmax at ({}, {}) of a {} x {} tensor", number, s.absmax_row, s.absmax_col,
                  row.rows, row.cols);
  if (row.sketch_k == 0)
    return {};
  const std::size_t slot = sketch_slot(row.sketch_k);
  if (slot >= std::size(sketches))
    return refuse("row {} of /index has sketch_k {}; 0, 64, 128 and 256 exist", number, row.sketch_k);
  if (row.sketch_row < 0 || row.sketch_row >= sketches[slot].rows)
    return refuse("row {} of /index has sketch_row {}, but /sketches/k{} has {} rows", number, row.sketch_row,
                  row.sketch_k, sketches[slot].rows);
  return {};
}

Result<void> DumpReader::Impl::take_index(const std::vector<IndexRecord>& records) {
  std::set<std::int32_t> complete = {-1}; // weights belong to no step
  for (const StepRow& step : steps)
    complete.insert(step.step);
  std::size_t count = records.size();
  // A producer that died between lengthening the table and filling it leaves empty rows at the end.
  while (!finished && count > 0 && records[count - 1].probe[0] == '\0')
    --count;
  std::unordered_set<std::string> seen;
  std::int64_t named[3] = {};
  for (std::size_t i = 0; i < count; ++i) {
    if (const std::size_t slot = sketch_slot(records[i].sketch_k); slot < std::size(sketches))
      ++named[slot];
    if (!complete.contains(records[i].step)) {
      if (finished)
        return refuse("row {} of /index is of step {}, which /steps does not have", i, records[i].step);
      continue;
    }
    auto row = index_row(records[i], i);
    if (!row)
      return row.error();
    if (!seen.insert(row_key(*row)).second)
      return refuse("row {} of /index repeats step {}, probe {}, segment {}", i, row->step, printable(row->probe),
                    name(row->segment));
    index.push_back(*std::move(row));
  }
  // A table that lost its end would otherwise read as a run that looked at less.
  for (std::size_t slot = 0; slot < std::size(sketches) && finished; ++slot)
    if (named[slot] != sketches[slot].rows)
      return refuse("/sketches/k{} has {} rows, and /index names {}", sketch_sizes[slot], sketches[slot].rows,
                    named[slot]);
  return {};
}

Result<void> DumpReader::Impl::take_columns(const std::vector<ColumnRecord>& records) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    const ColumnRecord& record = records[i];
    const auto digest = Digest::parse(field_text(record.digest));
    const std::string probe(field_text(record.probe));
    if (probe.empty())
      return refuse("row {} of /columns names no probe", i);
    if (!digest)
      return refuse("row {} of /columns has the digest '{}', which is not 32 lower-case hex digits", i,
                    printable(field_text(record.digest)));
    std::vector<ColumnMeasurement>& of_probe = columns[probe];
    if (record.column != static_cast<std::int32_t>(of_probe.size()))
      return refuse("row {} of /columns is column {} of {}, after {}", i, record.column, printable(probe),
                    static_cast<std::int64_t>(of_probe.size()) - 1);
    if (record.zeros < 0 || record.nan < 0 || record.inf < 0)
      return refuse("row {} of /columns has a negative count", i);
    ColumnMeasurement& column = of_probe.emplace_back();
    column.column = record.column;
    column.digest = *digest;
    column.zeros = record.zeros;
    column.nan = record.nan;
    column.inf = record.inf;
    column.mean = record.mean;
    column.std = record.std;
    column.l2 = record.l2;
    column.min = record.min;
    column.max = record.max;
    column.absmax = record.absmax;
  }
  for (const IndexRow& row : index)
    if (const auto found = columns.find(row.probe);
        found != columns.end() && static_cast<std::int64_t>(found->second.size()) != row.cols)
      return refuse("/columns has {} columns of {}, and /index {}", found->second.size(), printable(row.probe),
                    row.cols);
  return {};
}

Result<void> DumpReader::Impl::check_tensor(const IndexRow& row) const {
  const std::string key = row_key(row);
  const auto found = tensors.find(key);
  const bool captured = row.level == Level::rows || row.level == Level::full;
  if (found == tensors.end()) {
    if (captured)
      return refuse("/tensors/{} is missing, whose level is {}", printable(key), name(row.level));
    return {};
  }
  const TensorRecord& tensor = found->second;
  const auto dtype = parse_dtype(field_text(tensor.dtype));
  if (dtype != row.dtype && dtype != row.stored_dtype)
    return refuse("/tensors/{} is {}, and /index says {}", printable(key), field_text(tensor.dtype), name(row.dtype));
  const std::int64_t rows_of = tensor.sampled_of > 0 ? tensor.sampled_of : tensor.rows;
  if (rows_of != row.rows || tensor.cols != row.cols)
    return refuse("/tensors/{} is {} x {}, and /index says {} x {}", printable(key), rows_of, tensor.cols, row.rows,
                  row.cols);
  return {};
}

Result<void> DumpReader::Impl::take_tensors(const std::vector<TensorRecord>& records) {
  for (const TensorRecord& record : records)
    if (!tensors.emplace(row_key(record.step, field_text(record.probe), field_text(record.segment)), record).second)
      return refuse("/tensors holds {} twice", printable(field_text(record.probe)));
  for (const IndexRow& row : index)
    if (auto ok = check_tensor(row); !ok)
      return ok;
  return {};
}

Result<void> DumpReader::Impl::take(Scan scan) {
  std::copy(std::begin(scan.sketches), std::end(scan.sketches), std::begin(sketches));
  if (auto ok = take_facts(std::move(scan.facts)); !ok)
    return ok;
  if (auto ok = take_steps(scan.steps); !ok)
    return ok;
  if (auto ok = take_index(scan.index); !ok)
    return ok;
  if (auto ok = take_columns(scan.columns); !ok)
    return ok;
  for (std::size_t i = 0; i < scan.dispatch.size(); ++i) {
    const DispatchRecord& record = scan.dispatch[i];
    if (record.calls < 0 || record.fallbacks < 0 || record.fallbacks > record.calls)
      return refuse("row {} of /dispatch counts {} calls and {} fallbacks", i, record.calls, record.fallbacks);
    dispatch.push_back({std::string(field_text(record.op)), std::string(field_text(record.implementation)),
                        std::string(field_text(record.declared)), record.calls, record.fallbacks});
  }
  for (const UnobservedRecord& record : scan.unobserved)
    unobserved.push_back({std::string(field_text(record.probe)), std::string(field_text(record.reason))});
  return take_tensors(scan.tensors);
}

DumpReader::DumpReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DumpReader::DumpReader(DumpReader&&) noexcept = default;
DumpReader& DumpReader::operator=(DumpReader&&) noexcept = default;
DumpReader::~DumpReader() = default;

Result<DumpReader> DumpReader::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // not to wait for a pipe's other end
  struct stat info {};
  if (impl->file.fd < 0 || fstat(impl->file.fd, &info) != 0)
    return bad_input(fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
  if (!S_ISREG(info.st_mode))
    return bad_input(fmt::format("{} is not a file", path));
  if (info.st_size == 0)
    return bad_input(fmt::format("{} is empty", path));
  if (!is_hdf5(path))
    return bad_input(fmt::format("{} is not an HDF5 file", path));

  const auto size = static_cast<std::uint64_t>(info.st_size);
  GuardLimits limits;
  limits.memory_bytes += 3 * std::min(size, std::uint64_t{2} << 30); // what is read of it, and HDF5's copies
  const int fd = impl->file.fd;
  auto hand_over = run_guarded(path, limits, [&](int out) { scan_dump(fd, size, path, out); });
  if (!hand_over)
    return hand_over.error();
  impl->hand_over.fd = *hand_over;
  auto scan = read_scan(impl->hand_over.fd, path);
  if (!scan)
    return scan.error();
  if (auto ok = impl->take(*std::move(scan)); !ok)
    return ok.error();
  return DumpReader(std::move(impl));
}

const std::string& DumpReader::path() const { return impl_->path; }
const RunFacts& DumpReader::facts() const { return impl_->facts; }
bool DumpReader::finished() const { return impl_->finished; }
const std::vector<IndexRow>& DumpReader::index() const { return impl_->index; }
const std::vector<StepRow>& DumpReader::steps() const { return impl_->steps; }
const std::vector<DispatchRow>& DumpReader::dispatch() const { return impl_->dispatch; }
const std::vector<Unobserved>& DumpReader::unobserved() const { return impl_->unobserved; }

std::string DumpReader::fact(const std::string& name, const std::string& otherwise) const {
  const auto found = impl_->facts.find(name);
  if (found == impl_->facts.end())
    return otherwise;
  return std::visit([](const auto& value) { return fmt::format("{}", value); }, found->second);
}

std::vector<ColumnMeasurement> DumpReader::columns(const std::string& probe) const {
  const auto found = impl_->columns.find(probe);
  return found == impl_->columns.end() ? std::vector<ColumnMeasurement>() : found->second;
}

Result<std::vector<float>> DumpReader::sketch(const IndexRow& row) const {
  std::vector<float> values;
  if (row.sketch_k == 0)
    return values;
  const std::size_t slot = sketch_slot(row.sketch_k);
  if (slot >= std::size(sketch_sizes) || row.sketch_row < 0 || row.sketch_row >= impl_->sketches[slot].rows)
    return impl_->refuse("there is no sketch {} of {} buckets", row.sketch_row, row.sketch_k);
  values.resize(static_cast<std::size_t>(row.sketch_k));
  const std::uint64_t bytes = values.size() * sizeof(float);
  if (!read_at(impl_->hand_over.fd, impl_->sketches[slot].offset + static_cast<std::uint64_t>(row.sketch_row) * bytes,
               values.data(), bytes))
    return impl_->refuse("the sketch of {} cannot be read", printable(row.probe));
  return values;
}

Result<std::optional<StoredTensor>> DumpReader::tensor(const IndexRow& row) const {
  const auto found = impl_->tensors.find(row_key(row));
  if (found == impl_->tensors.end())
    return std::optional<StoredTensor>();
  const TensorRecord& record = found->second;
  StoredTensor tensor;
  tensor.dtype = *parse_dtype(field_text(record.dtype)); // check_tensor has seen it
  tensor.rows = record.rows;
  tensor.cols = record.cols;
  tensor.sampled_of = record.sampled_of;
  tensor.fd_ = impl_->file.fd;
  tensor.offset_ = record.offset;
  tensor.label_ = fmt::format("{}: /tensors/{}", impl_->path, printable(row_key(row)));
  return std::optional<StoredTensor>(std::move(tensor));
}

Result<void> StoredTensor::read_rows(std::int64_t begin, std::int64_t count, void* out) const {
  if (begin < 0 || count < 0 || begin > rows || count > rows - begin)
    return Error{ExitCode::internal,
                 fmt::format("{}: rows {} to {} of {} were asked for", label_, begin, begin + count, rows)};
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(cols) * item_size(dtype);
  if (!read_at(fd_, offset_ + static_cast<std::uint64_t>(begin) * row_bytes, out,
               static_cast<std::uint64_t>(count) * row_bytes))
    return bad_input(fmt::format("{} cannot be read at rows {} to {}", label_, begin, begin + count));
  return {};
}

} // namespace h3diff::probes
