#include "commit_file.hpp"
#include "dump_tables.hpp"
#include "h3diff/probes/dump.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

namespace h3diff::probes {
namespace {

constexpr std::size_t copy_buffer_bytes = std::size_t{4} << 20;

// Room for the names of a group's links. A heap that is full moves, and HDF5 may use its old place again, which
// commit_file.hpp does not want of committed bytes: so much that "/" and "/tensors" (a name a step) never fill up.
constexpr std::size_t root_heap_bytes = 1024, tensors_heap_bytes = 64 * 1024, other_heap_bytes = 256;

std::size_t sketch_slot(int k) { return k == 64 ? 0 : k == 128 ? 1 : 2; }

// Copies rows of a strided tensor, flattened to [rows, cols], next to each other.
class RowCopier {
public:
  explicit RowCopier(const TensorView& view) : view_(view), item_(item_size(view.dtype)) {
    const std::int64_t cols = view.cols();
    columns_.resize(static_cast<std::size_t>(cols));
    for (std::int64_t c = 0; c < cols; ++c)
      columns_[static_cast<std::size_t>(c)] = offset(c, view.row_dims, view.dims);
    dense_ = true;
    for (std::int64_t c = 0; c < cols && dense_; ++c)
      dense_ = columns_[static_cast<std::size_t>(c)] == c;
  }

  std::size_t row_bytes() const { return columns_.size() * item_; }

  void copy(std::int64_t row, unsigned char* out) const {
    const auto* data = static_cast<const unsigned char*>(view_.data);
    const auto* from = data + offset(row, 0, view_.row_dims) * static_cast<std::int64_t>(item_);
    if (dense_) {
      std::memcpy(out, from, row_bytes());
      return;
    }
    for (const std::int64_t column : columns_) {
      std::memcpy(out, from + column * static_cast<std::int64_t>(item_), item_);
      out += item_;
    }
  }

private:
  // Element offset of flat index `index` over dimensions [begin, end).
  std::int64_t offset(std::int64_t index, int begin, int end) const {
    std::int64_t at = 0;
    for (int d = end - 1; d >= begin; --d) {
      const auto i = static_cast<std::size_t>(d);
      at += index % view_.sizes[i] * view_.strides[i];
      index /= view_.sizes[i];
    }
    return at;
  }

  const TensorView& view_;
  std::size_t item_;
  std::vector<std::int64_t> columns_;
  bool dense_ = false;
};

// The rows that are stored, in the segment's order: all, or `sample` of them spread evenly.
std::vector<std::int64_t> chosen_rows(std::span<const RowRange> ranges, std::int64_t sample) {
  std::int64_t total = 0;
  for (const RowRange& range : ranges)
    total += range.end - range.begin;
  const std::int64_t count = sample > 0 ? std::min(sample, total) : total;
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(count));
  std::int64_t passed = 0;
  for (const RowRange& range : ranges) {
    for (const std::int64_t size = range.end - range.begin; static_cast<std::int64_t>(rows.size()) < count;) {
      const auto i = static_cast<std::int64_t>(rows.size());
      // i * total may overflow only beyond 2^31 rows, which no sequence has
      const std::int64_t wanted = count == total ? i : i * total / count;
      if (wanted >= passed + size)
        break;
      rows.push_back(range.begin + wanted - passed);
    }
    passed += range.end - range.begin;
  }
  return rows;
}

bool fill(IndexRecord& out, const IndexRow& row) {
  const Statistics& s = row.statistics;
  const bool measured = row.level != Level::digest;
  const auto number = [&](double value) { return measured ? value : Statistics::undefined; };
  out = {};
  out.step = row.step;
  const bool fits = set_field(out.probe, row.probe);
  set_field(out.segment, name(row.segment));
  set_field(out.dtype, name(row.dtype));
  set_field(out.stored_dtype, name(row.stored_dtype));
  out.rows = row.rows;
  out.cols = row.cols;
  set_field(out.digest, row.digest.hex());
  set_field(out.level, name(row.level));
  if (measured) {
    out.zeros = s.zeros;
    out.nan = s.nan;
    out.inf = s.inf;
    out.subnormal = s.subnormal;
    std::copy(s.row_bands.begin(), s.row_bands.end(), out.row_bands);
    std::copy(s.col_groups.begin(), s.col_groups.end(), out.col_groups);
  }
  out.mean = number(s.mean);
  out.std = number(s.std);
  out.l2 = number(s.l2);
  out.min = number(s.min);
  out.max = number(s.max);
  out.absmax = number(s.absmax);
  out.absmax_row = measured ? s.absmax_row : -1;
  out.absmax_col = measured ? s.absmax_col : -1;
  out.cosine = row.cosine;
  out.sketch_k = row.sketch_k;
  out.sketch_row = row.sketch_row;
  return fits;
}

bool fill(ColumnRecord& out, const std::string& probe, const ColumnMeasurement& column) {
  out = {};
  out.column = column.column;
  set_field(out.digest, column.digest.hex());
  out.zeros = column.zeros;
  out.nan = column.nan;
  out.inf = column.inf;
  out.mean = column.mean;
  out.std = column.std;
  out.l2 = column.l2;
  out.min = column.min;
  out.max = column.max;
  out.absmax = column.absmax;
  return set_field(out.probe, probe);
}

} // namespace

struct DumpWriter::Impl {
  std::string path, partial;
  bool overwrite = false;
  bool finished = false;
  // The HDF5 ids below use `target`, so it is declared before them and outlives them.
  std::unique_ptr<CommitFile> target;
  Handle file, run;
  std::map<std::string, Handle> tables;      // by path
  std::map<std::string, Handle> groups;      // by path
  std::map<std::string, Handle> step_groups; // by path, those of the step at hand
  std::array<std::int64_t, 3> sketch_rows{}; // written so far
  struct HeldRow {
    IndexRecord record;
    std::vector<float> sketch;
  };
  std::vector<HeldRow> index;
  std::vector<ColumnRecord> columns;
  RunFacts facts;               // not written yet
  std::optional<Error> refused; // from a call that returns nothing; the next call that can, tells it

  Error failed(const char* what) const {
    if (auto disk = target->failure(); !disk)
      return disk.error();
    return environment_error(fmt::format("{}: {} failed ({})", partial, what, hdf5_message()));
  }

  Result<void> open();
  Result<void> write_fact(const std::string& name, const Fact& fact);
  Result<void> write_facts();
  Result<hid_t> table(const std::string& key, hid_t type, hsize_t chunk_rows, hsize_t width);
  Result<void> append(hid_t dataset, hid_t type, const void* records, hsize_t count, hsize_t width);
  Result<void> append_held();
  Result<hid_t> group(std::map<std::string, Handle>& open, const std::string& path, std::size_t heap_bytes);
  Result<void> commit();
  Result<void> write_tensor(std::int32_t step, const std::string& probe, Segment segment, const TensorView& view,
                            std::span<const RowRange> ranges, std::int64_t sample_rows);
  Result<void> close_file();

  template <class Record> Result<void> append_records(const TableLayout& layout, const std::vector<Record>& records) {
    if (records.empty())
      return {};
    const Handle in_memory = table_type(layout, false), in_file = table_type(layout, true);
    auto dataset = table(layout.path, in_file.get(), layout.chunk_rows, 0);
    if (!dataset)
      return dataset.error();
    return append(*dataset, in_memory.get(), records.data(), records.size(), 0);
  }
};

// One attribute of /run; an attribute of that name is replaced.
Result<void> DumpWriter::Impl::write_fact(const std::string& name, const Fact& fact) {
  const Handle space = space_handle(H5Screate(H5S_SCALAR));
  Handle type;
  const void* data = nullptr;
  std::string text;
  if (const auto* string = std::get_if<std::string>(&fact)) {
    text = *string;
    if (text.empty())
      text.push_back('\0'); // HDF5 has no strings of no bytes
    type = string_type(text.size());
    data = text.data();
  } else if (const auto* integer = std::get_if<std::int64_t>(&fact)) {
    type = type_handle(H5Tcopy(H5T_STD_I64LE));
    data = integer;
  } else {
    type = type_handle(H5Tcopy(H5T_IEEE_F64LE));
    data = &std::get<double>(fact);
  }
  const htri_t exists = H5Aexists(run.get(), name.c_str());
  if (exists > 0) {
    // Same type: overwritten where it is, which is one small write.
    Handle old = attribute_handle(H5Aopen(run.get(), name.c_str(), H5P_DEFAULT));
    const Handle old_type = type_handle(H5Aget_type(old.get()));
    if (H5Tequal(old_type.get(), type.get()) > 0) {
      if (H5Awrite(old.get(), type.get(), data) < 0)
        return failed("writing a run fact");
      return {};
    }
    old.reset();
    if (H5Adelete(run.get(), name.c_str()) < 0)
      return failed("replacing a run fact");
  }
  const Handle attribute =
      attribute_handle(H5Acreate2(run.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute || H5Awrite(attribute.get(), type.get(), data) < 0)
    return failed("writing a run fact");
  return {};
}

Result<void> DumpWriter::Impl::write_facts() {
  for (const auto& [name, fact] : facts)
    if (auto ok = write_fact(name, fact); !ok)
      return ok;
  facts.clear();
  return {};
}

// The chunked table under `key`, created if need be. width 0: one-dimensional.
Result<hid_t> DumpWriter::Impl::table(const std::string& key, hid_t type, hsize_t chunk_rows, hsize_t width) {
  if (const auto found = tables.find(key); found != tables.end())
    return found->second.get();
  const int rank = width == 0 ? 1 : 2;
  const hsize_t size[] = {0, width}, limit[] = {H5S_UNLIMITED, width}, chunk[] = {chunk_rows, width};
  const Handle space = space_handle(H5Screate_simple(rank, size, limit));
  const Handle list = list_handle(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_chunk(list.get(), rank, chunk);
  H5Pset_fill_time(list.get(), H5D_FILL_TIME_ALLOC);
  H5Pset_obj_track_times(list.get(), false);
  Handle dataset =
      dataset_handle(H5Dcreate2(file.get(), key.c_str(), type, space.get(), H5P_DEFAULT, list.get(), H5P_DEFAULT));
  if (!dataset)
    return failed("creating a table");
  return tables.emplace(key, std::move(dataset)).first->second.get();
}

Result<void> DumpWriter::Impl::append(hid_t dataset, hid_t type, const void* records, hsize_t count, hsize_t width) {
  const int rank = width == 0 ? 1 : 2;
  Handle space = space_handle(H5Dget_space(dataset));
  hsize_t size[2] = {0, 0};
  if (H5Sget_simple_extent_dims(space.get(), size, nullptr) != rank)
    return failed("reading a table's length");
  const hsize_t start[] = {size[0], 0}, block[] = {count, width}, grown[] = {size[0] + count, width};
  if (H5Dset_extent(dataset, grown) < 0)
    return failed("lengthening a table");
  space = space_handle(H5Dget_space(dataset));
  const Handle memory = space_handle(H5Screate_simple(rank, block, nullptr));
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, block, nullptr) < 0 ||
      H5Dwrite(dataset, type, memory.get(), space.get(), H5P_DEFAULT, records) < 0)
    return failed("writing a table");
  return {};
}

Result<void> DumpWriter::Impl::append_held() {
  std::vector<IndexRecord> records;
  std::array<std::vector<float>, 3> values;
  for (HeldRow& row : index) {
    if (!row.sketch.empty()) {
      const std::size_t slot = sketch_slot(row.record.sketch_k);
      row.record.sketch_row = sketch_rows[slot]++;
      values[slot].insert(values[slot].end(), row.sketch.begin(), row.sketch.end());
    }
    records.push_back(row.record);
  }
  index.clear();
  for (const int k : sketch_sizes) {
    const std::vector<float>& buckets = values[sketch_slot(k)];
    if (buckets.empty())
      continue;
    if (auto parent = group(groups, "/sketches", other_heap_bytes); !parent)
      return parent.error();
    const auto width = static_cast<hsize_t>(k);
    auto dataset = table(fmt::format("/sketches/k{}", k), H5T_IEEE_F32LE, sketch_chunk_rows, width);
    if (!dataset)
      return dataset.error();
    if (auto ok = append(*dataset, H5T_NATIVE_FLOAT, buckets.data(), buckets.size() / width, width); !ok)
      return ok;
  }
  if (auto ok = append_records(column_table, columns); !ok)
    return ok;
  columns.clear();
  return append_records(index_table, records);
}

// The group at `where`, created if need be; its parent exists.
Result<hid_t> DumpWriter::Impl::group(std::map<std::string, Handle>& open, const std::string& where,
                                      std::size_t heap_bytes) {
  if (const auto found = open.find(where); found != open.end())
    return found->second.get();
  Handle made;
  if (H5Lexists(file.get(), where.c_str(), H5P_DEFAULT) > 0) {
    made = group_handle(H5Gopen2(file.get(), where.c_str(), H5P_DEFAULT));
  } else {
    const Handle list = list_handle(H5Pcreate(H5P_GROUP_CREATE));
    H5Pset_local_heap_size_hint(list.get(), heap_bytes);
    made = group_handle(H5Gcreate2(file.get(), where.c_str(), H5P_DEFAULT, list.get(), H5P_DEFAULT));
  }
  if (!made)
    return failed("creating a group");
  return open.emplace(where, std::move(made)).first->second.get();
}

Result<void> DumpWriter::Impl::commit() {
  if (H5Fflush(file.get(), H5F_SCOPE_LOCAL) < 0)
    return failed("flushing");
  return target->commit();
}

Result<void> DumpWriter::Impl::open() {
  start_hdf5();
  auto opened = CommitFile::create(partial);
  if (!opened)
    return opened.error();
  target = *std::move(opened);
  const Handle access = target->access_list();
  const Handle creation = list_handle(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_local_heap_size_hint(creation.get(), root_heap_bytes);
  if (!access)
    return failed("registering the file driver");
  file = file_handle(H5Fcreate(partial.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()));
  if (!file)
    return failed("creating the file");

  const Handle space = space_handle(H5Screate(H5S_SCALAR));
  const Handle format_type = string_type(std::strlen("h3diff-dump"));
  const Handle root = group_handle(H5Gopen2(file.get(), "/", H5P_DEFAULT));
  const Handle format =
      attribute_handle(H5Acreate2(root.get(), "format", format_type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  const Handle version =
      attribute_handle(H5Acreate2(root.get(), "version", H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  const std::int64_t one = 1;
  if (!format || !version || H5Awrite(format.get(), format_type.get(), "h3diff-dump") < 0 ||
      H5Awrite(version.get(), H5T_NATIVE_INT64, &one) < 0)
    return failed("writing the format's name");

  run = group_handle(H5Gcreate2(file.get(), "run", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  if (!run)
    return failed("creating a group");
  facts["finished"] = std::int64_t{0};
  if (auto ok = write_facts(); !ok)
    return ok;

  std::vector<std::uint64_t> last;
  for (const TableLayout* layout : {&index_table, &step_table}) {
    const Handle type = table_type(*layout, true);
    auto made = table(layout->path, type.get(), layout->chunk_rows, 0);
    if (!made)
      return made.error();
    H5O_info_t info;
#if H5_VERSION_GE(1, 12, 0)
    static_assert(sizeof(haddr_t) == sizeof(std::uint64_t));
    H5O_native_info_t native;
    if (H5Oget_native_info(*made, &native, H5O_NATIVE_INFO_ALL) < 0 || H5Oget_info3(*made, &info, H5O_INFO_BASIC) < 0)
      return failed("finding a table");
    haddr_t address = HADDR_UNDEF;
    std::memcpy(&address, &info.token, sizeof address); // how the native file format makes its tokens
#else
    if (H5Oget_info2(*made, &info, H5O_INFO_BASIC) < 0)
      return failed("finding a table");
    const haddr_t address = info.addr;
#endif
    last.push_back(address);
  }
  target->set_last(std::move(last));
  return commit();
}

Result<void> DumpWriter::Impl::write_tensor(std::int32_t step, const std::string& probe, Segment segment,
                                            const TensorView& view, std::span<const RowRange> ranges,
                                            std::int64_t sample_rows) {
  const std::vector<std::int64_t> rows = chosen_rows(ranges, sample_rows);
  if (auto root = group(groups, "/tensors", tensors_heap_bytes); !root)
    return root.error();
  const std::string step_path = fmt::format("/tensors/{}", step);
  if (auto of_step = group(step_groups, step_path, other_heap_bytes); !of_step)
    return of_step.error();
  auto parent = group(step_groups, step_path + "/" + probe, other_heap_bytes);
  if (!parent)
    return parent.error();

  const Handle type = element_type(view.dtype);
  const hsize_t size[] = {rows.size(), static_cast<hsize_t>(view.cols())};
  const Handle space = space_handle(H5Screate_simple(2, size, nullptr));
  const Handle list = list_handle(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_layout(list.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(list.get(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(list.get(), false);
  const std::string segment_name(name(segment));
  const Handle dataset = dataset_handle(
      H5Dcreate2(*parent, segment_name.c_str(), type.get(), space.get(), H5P_DEFAULT, list.get(), H5P_DEFAULT));
  if (!dataset)
    return failed("creating a tensor");

  const Handle scalar = space_handle(H5Screate(H5S_SCALAR));
  const std::string dtype(name(view.dtype));
  const Handle text = string_type(dtype.size());
  const Handle attribute =
      attribute_handle(H5Acreate2(dataset.get(), "dtype", text.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute || H5Awrite(attribute.get(), text.get(), dtype.data()) < 0)
    return failed("writing a tensor's dtype");
  if (sample_rows > 0) {
    std::int64_t total = 0;
    for (const RowRange& range : ranges)
      total += range.end - range.begin;
    const Handle sampled = attribute_handle(
        H5Acreate2(dataset.get(), "sampled_of", H5T_STD_I64LE, scalar.get(), H5P_DEFAULT, H5P_DEFAULT));
    if (!sampled || H5Awrite(sampled.get(), H5T_NATIVE_INT64, &total) < 0)
      return failed("writing a tensor's sampling");
  }

  const RowCopier copier(view);
  const std::size_t row_bytes = copier.row_bytes();
  if (rows.empty() || row_bytes == 0)
    return {};
  const haddr_t address = H5Dget_offset(dataset.get());
  if (address == HADDR_UNDEF)
    return failed("placing a tensor");
  // Straight into the space that HDF5 has set aside: the bytes are in the file's types already.
  const std::size_t batch = std::max<std::size_t>(1, copy_buffer_bytes / row_bytes);
  std::vector<unsigned char> buffer(std::min(batch, rows.size()) * row_bytes);
  for (std::size_t begin = 0; begin < rows.size(); begin += batch) {
    const std::size_t count = std::min(batch, rows.size() - begin);
    for (std::size_t i = 0; i < count; ++i)
      copier.copy(rows[begin + i], buffer.data() + i * row_bytes);
    target->write_through(address + begin * row_bytes, buffer.data(), count * row_bytes);
  }
  return target->failure();
}

// Closes every id, then applies what closing wrote.
Result<void> DumpWriter::Impl::close_file() {
  step_groups.clear();
  groups.clear();
  tables.clear();
  run.reset();
  if (file && !file.reset())
    return failed("closing");
  return target->commit();
}

DumpWriter::DumpWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DumpWriter::DumpWriter(DumpWriter&&) noexcept = default;
DumpWriter& DumpWriter::operator=(DumpWriter&&) noexcept = default;

DumpWriter::~DumpWriter() {
  // Failure here has nobody to hear it; the steps that were committed stand either way.
  if (impl_ && !impl_->finished && impl_->file)
    static_cast<void>(impl_->close_file());
}

Result<DumpWriter> DumpWriter::create(const Options& options, const RunFacts& facts) {
  std::error_code ignored;
  if (!options.overwrite && std::filesystem::exists(std::filesystem::symlink_status(options.path, ignored)))
    return usage_error(fmt::format("{} exists; give another name or ask to overwrite it", options.path));
  if (std::filesystem::is_directory(options.path, ignored))
    return usage_error(fmt::format("{} is a folder", options.path));
  auto impl = std::make_unique<Impl>();
  impl->path = options.path;
  impl->partial = options.path + ".partial";
  impl->overwrite = options.overwrite;
  impl->facts = facts;
  if (auto ok = impl->open(); !ok)
    return ok.error();
  return DumpWriter(std::move(impl));
}

void DumpWriter::add(IndexRow row, std::span<const double> sketch) {
  row.sketch_k = static_cast<int>(sketch.size());
  row.sketch_row = -1; // known when the step ends
  if (!sketch.empty() &&
      std::find(std::begin(sketch_sizes), std::end(sketch_sizes), row.sketch_k) == std::end(sketch_sizes)) {
    impl_->refused =
        Error{ExitCode::internal, fmt::format("{}: probe {} has a sketch of {} buckets; 64, 128 and 256 exist",
                                              impl_->partial, row.probe, sketch.size())};
    return;
  }
  Impl::HeldRow& held = impl_->index.emplace_back();
  for (const double bucket : sketch)
    held.sketch.push_back(static_cast<float>(bucket));
  if (!fill(held.record, row))
    impl_->refused = Error{ExitCode::internal,
                           fmt::format("{}: the probe name {} is longer than 80 bytes", impl_->partial, row.probe)};
}

void DumpWriter::add_columns(const std::string& probe, std::span<const ColumnMeasurement> columns) {
  for (const ColumnMeasurement& column : columns)
    if (!fill(impl_->columns.emplace_back(), probe, column))
      impl_->refused = Error{ExitCode::internal,
                             fmt::format("{}: the probe name {} is longer than 80 bytes", impl_->partial, probe)};
}

Result<void> DumpWriter::add_tensor(std::int32_t step, const std::string& probe, Segment segment,
                                    const TensorView& view, std::span<const RowRange> ranges,
                                    std::int64_t sample_rows) {
  return impl_->write_tensor(step, probe, segment, view, ranges, sample_rows);
}

Result<void> DumpWriter::end_step(const StepRow& row) {
  if (impl_->refused)
    return *impl_->refused;
  if (auto ok = impl_->append_held(); !ok)
    return ok;
  if (auto ok = impl_->write_facts(); !ok)
    return ok;
  impl_->step_groups.clear();
  if (row.step >= 0) { // weights (-1) belong to no step
    const std::vector<StepRecord> record{
        {row.step, row.sigma_video, row.sigma_audio, row.sigma_video_next, row.sigma_audio_next}};
    if (auto ok = impl_->append_records(step_table, record); !ok)
      return ok;
  }
  return impl_->commit();
}

void DumpWriter::set_fact(const std::string& name, Fact fact) { impl_->facts[name] = std::move(fact); }

Result<void> DumpWriter::finish(std::span<const DispatchRow> dispatch, std::span<const Unobserved> unobserved,
                                bool ended) {
  Impl& impl = *impl_;
  if (impl.refused)
    return *impl.refused;
  const auto cut = [](std::string_view text, std::size_t size) { return text.substr(0, size); };
  std::vector<DispatchRecord> choices;
  for (const DispatchRow& row : dispatch) {
    DispatchRecord& record = choices.emplace_back();
    record = {};
    if (!set_field(record.op, row.op) || !set_field(record.implementation, row.implementation) ||
        !set_field(record.declared, row.declared))
      return Error{ExitCode::internal, fmt::format("{}: a dispatch row of op {} is too long", impl.partial, row.op)};
    record.calls = row.calls;
    record.fallbacks = row.fallbacks;
  }
  std::vector<UnobservedRecord> blind;
  for (const Unobserved& row : unobserved) {
    UnobservedRecord& record = blind.emplace_back();
    record = {};
    if (!set_field(record.probe, row.probe))
      return Error{ExitCode::internal,
                   fmt::format("{}: the probe name {} is longer than 80 bytes", impl.partial, row.probe)};
    set_field(record.reason, cut(row.reason, sizeof record.reason)); // prose may be cut, names may not
  }
  // A step that was not ended is a step that was cut off.
  std::erase_if(impl.index, [](const Impl::HeldRow& row) { return row.record.step >= 0; });
  if (auto ok = impl.append_held(); !ok)
    return ok;
  if (auto ok = impl.append_records(dispatch_table, choices); !ok)
    return ok;
  if (auto ok = impl.append_records(unobserved_table, blind); !ok)
    return ok;
  impl.facts["finished"] = std::int64_t{ended ? 1 : 0};
  if (auto ok = impl.write_facts(); !ok)
    return ok;
  if (auto ok = impl.commit(); !ok)
    return ok;
  if (auto ok = impl.close_file(); !ok)
    return ok;
  if (auto ok = impl.target->sync(); !ok)
    return ok;

  if (renameat2(AT_FDCWD, impl.partial.c_str(), AT_FDCWD, impl.path.c_str(), impl.overwrite ? 0 : RENAME_NOREPLACE) !=
      0) {
    const int error = errno;
    if (error == EEXIST)
      return usage_error(fmt::format("{} appeared during the run; the dump is in {}", impl.path, impl.partial));
    // Some file systems cannot refuse to replace; what was checked at the start has to do there.
    if (error != EINVAL || std::rename(impl.partial.c_str(), impl.path.c_str()) != 0)
      return environment_error(
          fmt::format("{} cannot be renamed to {}: {}", impl.partial, impl.path, std::strerror(errno)));
  }
  impl.finished = true;
  return {};
}

const std::string& DumpWriter::partial_path() const { return impl_->partial; }

} // namespace h3diff::probes
