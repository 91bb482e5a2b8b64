#include "dump_scan.hpp"

#include "known_facts.hpp"
#include "scan_transfer.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <set>

namespace h3diff::probes {
namespace {

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t max_chunk_bytes = 64 * mebibyte;
constexpr std::uint64_t max_table_bytes = 2048 * mebibyte;
constexpr std::uint64_t max_deflate_ratio = 1032; // what deflate can reach at most
constexpr std::size_t max_record_bytes = 4096, max_attribute_bytes = 65536;
constexpr unsigned max_attributes = 1024;
constexpr hsize_t sketch_block_rows = 4096;

enum class Filtered : bool { no, allowed };

struct Link {
  std::string name;
  H5L_type_t type = H5L_TYPE_ERROR;
};

bool standard_integer(hid_t type) {
  for (const hid_t known : {H5T_STD_I8LE, H5T_STD_I16LE, H5T_STD_I32LE, H5T_STD_I64LE, H5T_STD_U8LE, H5T_STD_U16LE,
                            H5T_STD_U32LE, H5T_STD_U64LE})
    if (H5Tequal(type, known) > 0)
      return true;
  return false;
}

bool standard_float(hid_t type) { return H5Tequal(type, H5T_IEEE_F32LE) > 0 || H5Tequal(type, H5T_IEEE_F64LE) > 0; }

bool fixed_string(hid_t type) {
  return H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && H5Tget_size(type) > 0;
}

class Scanner {
public:
  Scanner(int fd, std::uint64_t size, const std::string& path, int out)
      : fd_(fd), file_size_(size), path_(path), out_(out) {}

  void run() {
    if (const auto scanned = scan(); !scanned)
      send(Section::error, scanned.error().message.data(), scanned.error().message.size());
    else
      send(Section::done, nullptr, 0);
  }

private:
  int fd_;
  std::uint64_t file_size_;
  const std::string& path_;
  int out_;
  Handle file_;
  std::set<std::uint64_t> groups_seen_;

  template <class... Args> Error refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return bad_input(path_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void send(Section tag, const void* data, std::uint64_t size) {
    put(&tag, sizeof tag);
    put(&size, sizeof size);
    put(data, size);
  }

  // Without room for what it found, the child dies and the parent tells that the hand-over is incomplete.
  void put(const void* data, std::uint64_t size) {
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t done = write(out_, bytes, size);
      if (done < 0 && errno == EINTR)
        continue;
      if (done <= 0)
        throw std::bad_alloc();
      bytes += done;
      size -= static_cast<std::uint64_t>(done);
    }
  }

  Result<void> scan();
  Result<void> open();
  Result<std::optional<Fact>> attribute(hid_t object, const std::string& object_name, const std::string& name,
                                        bool required_kind);
  Result<void> check_format();
  Result<void> scan_facts();
  Result<std::vector<Link>> links(hid_t group, const std::string& name);
  Result<Handle> group(const std::string& name);
  Result<void> check_storage(hid_t dataset, const std::string& name, std::uint64_t bytes, Filtered filtered);
  Result<void> check_columns(hid_t type, const TableLayout& table, std::vector<H5T_cset_t>& text_sets);
  Result<hsize_t> open_table(const std::string& name, int rank, Handle& dataset, Handle& type, hsize_t& width);
  template <class Record> Result<void> scan_table(const TableLayout& table, Section tag);
  Result<void> scan_sketches(int k, Section tag);
  Result<void> scan_tensors();
  Result<void> scan_tensor(std::int32_t step, const std::string& probe, const std::string& segment,
                           std::vector<TensorRecord>& tensors);
};

Result<void> Scanner::open() {
  start_hdf5();
  H5PLset_loading_state(0); // a file must not be able to ask for code
  const Handle access = list_handle(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_fapl_sec2(access.get());
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(access.get(), false, true); // a dump on a read-only or network file system, or being written
#endif
  // The descriptor that the parent opened and will read from, whatever has happened to the name since.
  const std::string same_file = fmt::format("/proc/self/fd/{}", fd_);
  file_ = file_handle(H5Fopen(same_file.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!file_)
    return bad_input(fmt::format("{} is not a readable HDF5 file ({})", path_, printable(hdf5_message(), 200)));
  return {};
}

// A scalar attribute as a fact; nullopt if it is absent, or (unless `required_kind`) of a type that no fact has.
Result<std::optional<Fact>> Scanner::attribute(hid_t object, const std::string& object_name, const std::string& name,
                                               bool required_kind) {
  const std::string where = printable(name, 60);
  const htri_t exists = H5Aexists(object, name.c_str());
  if (exists == 0)
    return std::optional<Fact>();
  const Handle found = attribute_handle(exists > 0 ? H5Aopen(object, name.c_str(), H5P_DEFAULT) : -1);
  const Handle type = type_handle(found ? H5Aget_type(found.get()) : -1);
  const Handle space = space_handle(found ? H5Aget_space(found.get()) : -1);
  if (!found || !type || !space)
    return refuse("attribute {} of {} cannot be read ({})", where, object_name, printable(hdf5_message(), 200));
  if (H5Sget_simple_extent_npoints(space.get()) != 1 || H5Aget_storage_size(found.get()) > max_attribute_bytes ||
      H5Tget_size(type.get()) > max_attribute_bytes) {
    if (required_kind)
      return refuse("attribute {} of {} is not a single value of at most {} bytes", where, object_name,
                    max_attribute_bytes);
    return std::optional<Fact>();
  }
  if (fixed_string(type.get())) {
    const std::size_t size = H5Tget_size(type.get());
    Handle memory = string_type(size);
    H5Tset_cset(memory.get(), H5Tget_cset(type.get())); // HDF5 does not convert between character sets
    std::string text(size, '\0');
    if (H5Aread(found.get(), memory.get(), text.data()) < 0)
      return refuse("attribute {} of {} cannot be read ({})", where, object_name, printable(hdf5_message(), 200));
    text.resize(field_text(text.data(), text.size()).size());
    return std::optional<Fact>(std::move(text));
  }
  if (standard_integer(type.get())) {
    std::int64_t value = 0;
    if (H5Aread(found.get(), H5T_NATIVE_INT64, &value) < 0)
      return refuse("attribute {} of {} cannot be read ({})", where, object_name, printable(hdf5_message(), 200));
    return std::optional<Fact>(value);
  }
  if (standard_float(type.get())) {
    double value = 0;
    if (H5Aread(found.get(), H5T_NATIVE_DOUBLE, &value) < 0)
      return refuse("attribute {} of {} cannot be read ({})", where, object_name, printable(hdf5_message(), 200));
    return std::optional<Fact>(value);
  }
  if (required_kind)
    return refuse("attribute {} of {} is neither a fixed-length string nor an integer nor a float", where, object_name);
  return std::optional<Fact>();
}

Result<void> Scanner::check_format() {
  const Handle root = group_handle(H5Gopen2(file_.get(), "/", H5P_DEFAULT));
  if (!root)
    return refuse("the root group cannot be opened ({})", printable(hdf5_message(), 200));
  const auto format = attribute(root.get(), "/", "format", true);
  if (!format)
    return format.error();
  if (!*format)
    return refuse("not a dump: the attribute format is missing");
  const auto* text = std::get_if<std::string>(&**format);
  if (text == nullptr || *text != "h3diff-dump")
    return refuse("not a dump: the attribute format is not h3diff-dump");
  const auto version = attribute(root.get(), "/", "version", true);
  if (!version)
    return version.error();
  const auto* number = *version ? std::get_if<std::int64_t>(&**version) : nullptr;
  if (number == nullptr)
    return refuse("the attribute version is missing or not an integer");
  if (*number != 1)
    return refuse("format version {}; this program reads version 1", *number);
  return {};
}

Result<void> Scanner::scan_facts() {
  auto run = group("/run");
  if (!run)
    return run.error();
  H5O_info_t info;
#if H5_VERSION_GE(1, 12, 0)
  const bool known = H5Oget_info3(run->get(), &info, H5O_INFO_NUM_ATTRS) >= 0;
#else
  const bool known = H5Oget_info2(run->get(), &info, H5O_INFO_NUM_ATTRS) >= 0;
#endif
  if (!known || info.num_attrs > max_attributes)
    return refuse("/run has no readable list of at most {} attributes", max_attributes);
  RunFacts facts;
  for (hsize_t i = 0; i < info.num_attrs; ++i) {
    char name[256] = {};
    const ssize_t length =
        H5Aget_name_by_idx(run->get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
    if (length <= 0)
      return refuse("attribute {} of /run has no readable name ({})", i, printable(hdf5_message(), 200));
    if (static_cast<std::size_t>(length) >= sizeof name)
      continue; // no fact of ours has such a name
    const bool known_name = std::any_of(std::begin(known_facts), std::end(known_facts),
                                        [&](const auto& fact) { return fact.first == name; });
    auto fact = attribute(run->get(), "/run", name, known_name);
    if (!fact)
      return fact.error();
    if (*fact)
      facts[name] = **std::move(fact);
  }
  const std::string encoded = encode_facts(facts);
  send(Section::facts, encoded.data(), encoded.size());
  return {};
}

// The links of a group, all of which must be hard: everything else can lead out of the file.
Result<std::vector<Link>> Scanner::links(hid_t group, const std::string& name) {
  std::vector<Link> found;
  struct Visit {
    std::vector<Link>* links;
    std::uint64_t limit;
  } visit{&found, file_size_ / 8 + 16}; // a link takes more than 8 bytes
  const herr_t done = H5Literate(
      group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr,
      [](hid_t, const char* link, const H5L_info_t* info, void* data) -> herr_t {
        auto* v = static_cast<Visit*>(data);
        if (v->links->size() >= v->limit)
          return -1;
        v->links->push_back({link, info->type});
        return 0;
      },
      &visit);
  if (done < 0)
    return refuse("the links of {} cannot be listed ({})", name, printable(hdf5_message(), 200));
  for (const Link& link : found)
    if (link.type != H5L_TYPE_HARD)
      return refuse("{} holds a soft, external or user-defined link ({}); a dump has none", name,
                    printable(link.name, 60));
  // A writer that died while HDF5 split a node of the group leaves links of that node listed twice (commit_file.hpp).
  std::sort(found.begin(), found.end(), [](const Link& a, const Link& b) { return a.name < b.name; });
  found.erase(std::unique(found.begin(), found.end(), [](const Link& a, const Link& b) { return a.name == b.name; }),
              found.end());
  return found;
}

// A group that has not been opened before: hard links can form cycles.
Result<Handle> Scanner::group(const std::string& name) {
  Handle opened = group_handle(H5Gopen2(file_.get(), name.c_str(), H5P_DEFAULT));
  if (!opened)
    return refuse("{} cannot be opened as a group ({})", printable(name), printable(hdf5_message(), 200));
#if H5_VERSION_GE(1, 12, 0)
  H5O_info2_t info;
  std::uint64_t address = 0;
  const bool known = H5Oget_info3(opened.get(), &info, H5O_INFO_BASIC) >= 0;
  std::copy_n(reinterpret_cast<const unsigned char*>(&info.token), sizeof address,
              reinterpret_cast<unsigned char*>(&address));
#else
  H5O_info_t info;
  const bool known = H5Oget_info2(opened.get(), &info, H5O_INFO_BASIC) >= 0;
  const std::uint64_t address = info.addr;
#endif
  if (!known || !groups_seen_.insert(address).second)
    return refuse("{} is linked from two places", printable(name));
  return opened;
}

// Where the dataset's bytes are: in this file, enough of them, behind no filter but shuffle and deflate.
Result<void> Scanner::check_storage(hid_t dataset, const std::string& name, std::uint64_t bytes, Filtered filtered) {
  const Handle list = list_handle(H5Dget_create_plist(dataset));
  const H5D_layout_t layout = list ? H5Pget_layout(list.get()) : H5D_LAYOUT_ERROR;
  if (layout == H5D_VIRTUAL)
    return refuse("{} is a virtual dataset; a dump has none", name);
  if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED)
    return refuse("{} has a layout that is neither contiguous nor chunked", name);
  if (H5Pget_external_count(list.get()) != 0)
    return refuse("{} is stored in another file; a dump is one file", name);
  const int filters = H5Pget_nfilters(list.get());
  if (filters < 0 || (filters > 0 && filtered == Filtered::no))
    return refuse("{} is filtered, which a dump does not allow there", name);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    const H5Z_filter_t id =
        H5Pget_filter2(list.get(), static_cast<unsigned>(i), &flags, &values, nullptr, 0, nullptr, &config);
    if (id != H5Z_FILTER_SHUFFLE && id != H5Z_FILTER_DEFLATE)
      return refuse("{} uses the filter {}; a dump allows shuffle and deflate", name, static_cast<int>(id));
  }
  if (bytes > max_table_bytes && filtered == Filtered::allowed)
    return refuse("{} would take {} bytes; at most {} are read", name, bytes, max_table_bytes);
  const std::uint64_t stored = H5Dget_storage_size(dataset);
  if (stored > file_size_)
    return refuse("{} claims {} bytes in a file of {}", name, stored, file_size_);
  const std::uint64_t reach = filters > 0 ? stored * max_deflate_ratio : stored;
  if (bytes > reach)
    return refuse("{} claims {} bytes, of which {} are stored", name, bytes, stored);

  if (layout == H5D_CHUNKED) {
    hsize_t dims[2] = {1, 1};
    const int rank = H5Pget_chunk(list.get(), 2, dims);
    const Handle type = type_handle(H5Dget_type(dataset));
    std::uint64_t chunk = H5Tget_size(type.get());
    bool fits = rank == 1 || rank == 2;
    for (int i = 0; i < rank && fits; ++i)
      fits = !__builtin_mul_overflow(chunk, static_cast<std::uint64_t>(dims[i]), &chunk);
    if (!fits || chunk > max_chunk_bytes)
      return refuse("{} has chunks of more than {} bytes", name, max_chunk_bytes);
  } else if (bytes > 0) {
    const haddr_t offset = H5Dget_offset(dataset);
    if (offset == HADDR_UNDEF || offset > file_size_ || bytes > file_size_ - offset)
      return refuse("{} reaches beyond the file's {} bytes", name, file_size_);
  }
  return {};
}

// Every documented column is there and of its class, in no wider type than its own where text or numbers would be
// cut; members lie side by side.
Result<void> Scanner::check_columns(hid_t type, const TableLayout& table, std::vector<H5T_cset_t>& text_sets) {
  if (H5Tget_class(type) != H5T_COMPOUND || H5Tget_size(type) > max_record_bytes)
    return refuse("{} is not a table of records of at most {} bytes", table.path, max_record_bytes);
  const int members = H5Tget_nmembers(type);
  std::vector<std::pair<std::size_t, std::size_t>> extents;
  for (int i = 0; i < members; ++i) {
    const Handle member = type_handle(H5Tget_member_type(type, static_cast<unsigned>(i)));
    const std::size_t begin = H5Tget_member_offset(type, static_cast<unsigned>(i));
    extents.emplace_back(begin, begin + H5Tget_size(member.get()));
  }
  std::sort(extents.begin(), extents.end());
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (extents[i].second > H5Tget_size(type) || (i > 0 && extents[i].first < extents[i - 1].second))
      return refuse("{} has columns that overlap", table.path);

  for (const TableColumn& column : table.columns) {
    const int at = H5Tget_member_index(type, column.name);
    if (at < 0)
      return refuse("{} has no column {}", table.path, column.name);
    const Handle member = type_handle(H5Tget_member_type(type, static_cast<unsigned>(at)));
    bool fits = false;
    text_sets.push_back(H5T_CSET_UTF8);
    switch (column.kind) {
    case ColumnKind::text:
      fits = fixed_string(member.get()) && H5Tget_size(member.get()) <= column.size;
      text_sets.back() = H5Tget_cset(member.get());
      break;
    case ColumnKind::int32:
    case ColumnKind::int64: fits = standard_integer(member.get()); break;
    case ColumnKind::float64: fits = standard_float(member.get()); break;
    case ColumnKind::float32x16: {
      hsize_t dims[1] = {0};
      if (H5Tget_class(member.get()) == H5T_ARRAY && H5Tget_array_ndims(member.get()) == 1 &&
          H5Tget_array_dims2(member.get(), dims) >= 0 && dims[0] == 16) {
        const Handle base = type_handle(H5Tget_super(member.get()));
        fits = standard_float(base.get());
      }
      break;
    }
    }
    if (!fits)
      return refuse("column {} of {} has the wrong type", column.name, table.path);
  }
  return {};
}

// Opens a table of the given rank; returns its rows, and the width of a 2-D one.
Result<hsize_t> Scanner::open_table(const std::string& name, int rank, Handle& dataset, Handle& type, hsize_t& width) {
  dataset = dataset_handle(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT));
  if (!dataset)
    return refuse("{} cannot be opened as a dataset ({})", name, printable(hdf5_message(), 200));
  type = type_handle(H5Dget_type(dataset.get()));
  const Handle space = space_handle(H5Dget_space(dataset.get()));
  hsize_t dims[2] = {0, 1};
  if (!type || !space || H5Sget_simple_extent_type(space.get()) != H5S_SIMPLE ||
      H5Sget_simple_extent_ndims(space.get()) != rank || H5Sget_simple_extent_dims(space.get(), dims, nullptr) != rank)
    return refuse("{} does not have {} dimension{}", name, rank, rank == 1 ? "" : "s");
  width = dims[1];
  return dims[0];
}

template <class Record> Result<void> Scanner::scan_table(const TableLayout& table, Section tag) {
  Handle dataset, type;
  hsize_t width = 0;
  const auto rows = open_table(table.path, 1, dataset, type, width);
  if (!rows)
    return rows.error();
  std::vector<H5T_cset_t> text_sets;
  if (auto ok = check_columns(type.get(), table, text_sets); !ok)
    return ok;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(*rows),
                             static_cast<std::uint64_t>(std::max(sizeof(Record), H5Tget_size(type.get()))), &bytes) ||
      *rows > max_table_bytes / sizeof(Record))
    return refuse("{} claims {} rows", table.path, *rows);
  if (auto ok = check_storage(dataset.get(), table.path, *rows * H5Tget_size(type.get()), Filtered::allowed); !ok)
    return ok;

  // As table_type, but with the file's character sets, between which HDF5 does not convert.
  const Handle memory = type_handle(H5Tcreate(H5T_COMPOUND, table.record_size));
  const Handle plain = table_type(table, false);
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Handle member = type_handle(H5Tget_member_type(plain.get(), static_cast<unsigned>(i)));
    if (table.columns[i].kind == ColumnKind::text)
      H5Tset_cset(member.get(), text_sets[i]);
    H5Tinsert(memory.get(), table.columns[i].name, table.columns[i].offset, member.get());
  }
  std::vector<Record> records(*rows);
  if (*rows > 0 && H5Dread(dataset.get(), memory.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, records.data()) < 0)
    return refuse("{} cannot be read ({})", table.path, printable(hdf5_message(), 200));
  send(tag, records.data(), records.size() * sizeof(Record));
  return {};
}

Result<void> Scanner::scan_sketches(int k, Section tag) {
  const std::string name = fmt::format("/sketches/k{}", k);
  Handle dataset, type;
  hsize_t width = 0;
  const auto rows = open_table(name, 2, dataset, type, width);
  if (!rows)
    return rows.error();
  if (width != static_cast<hsize_t>(k) || H5Tequal(type.get(), H5T_IEEE_F32LE) <= 0)
    return refuse("{} is not float32 [n, {}]", name, k);
  const std::uint64_t row_bytes = width * sizeof(float);
  if (*rows > max_table_bytes / row_bytes)
    return refuse("{} claims {} rows", name, *rows);
  if (auto ok = check_storage(dataset.get(), name, *rows * row_bytes, Filtered::allowed); !ok)
    return ok;

  const std::uint64_t bytes = *rows * row_bytes;
  put(&tag, sizeof tag);
  put(&bytes, sizeof bytes);
  std::vector<float> block;
  const Handle space = space_handle(H5Dget_space(dataset.get()));
  for (hsize_t begin = 0; begin < *rows; begin += sketch_block_rows) {
    const hsize_t start[] = {begin, 0}, count[] = {std::min(sketch_block_rows, *rows - begin), width};
    block.resize(count[0] * width);
    const Handle memory = space_handle(H5Screate_simple(2, count, nullptr));
    H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, count, nullptr);
    if (H5Dread(dataset.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT, block.data()) < 0) {
      // The section is half written: fill it up, then tell.
      std::fill(block.begin(), block.end(), 0.0F);
      for (hsize_t left = *rows - begin; left > 0; left -= std::min(left, count[0]))
        put(block.data(), std::min(left, count[0]) * row_bytes);
      return refuse("{} cannot be read ({})", name, printable(hdf5_message(), 200));
    }
    put(block.data(), block.size() * sizeof(float));
  }
  return {};
}

Result<void> Scanner::scan_tensor(std::int32_t step, const std::string& probe, const std::string& segment,
                                  std::vector<TensorRecord>& tensors) {
  const std::string path = fmt::format("/tensors/{}/{}/{}", step, probe, segment);
  const std::string name = printable(path);
  Handle dataset, type;
  hsize_t cols = 0;
  const auto rows = open_table(path, 2, dataset, type, cols);
  if (!rows)
    return rows.error();
  const auto dtype_fact = attribute(dataset.get(), name, "dtype", true);
  if (!dtype_fact)
    return dtype_fact.error();
  const auto* dtype_text = *dtype_fact ? std::get_if<std::string>(&**dtype_fact) : nullptr;
  const auto dtype = dtype_text != nullptr ? parse_dtype(*dtype_text) : std::nullopt;
  if (!dtype)
    return refuse("{} has no known dtype", name);
  const Handle expected = element_type(*dtype);
  if (H5Tequal(type.get(), expected.get()) <= 0)
    return refuse("{} is not stored as its dtype, {}", name, *dtype_text);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(*rows), static_cast<std::uint64_t>(cols), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(item_size(*dtype)), &bytes) || bytes > file_size_)
    return refuse("{} claims {} x {} elements in a file of {} bytes", name, *rows, cols, file_size_);
  const Handle list = list_handle(H5Dget_create_plist(dataset.get()));
  if (!list || H5Pget_layout(list.get()) != H5D_CONTIGUOUS)
    return refuse("{} is not contiguous", name);
  if (auto ok = check_storage(dataset.get(), name, bytes, Filtered::no); !ok)
    return ok;
  const auto sampled = attribute(dataset.get(), name, "sampled_of", true);
  if (!sampled)
    return sampled.error();
  const auto* sampled_of = *sampled ? std::get_if<std::int64_t>(&**sampled) : nullptr;
  if (*sampled && (sampled_of == nullptr || *sampled_of < static_cast<std::int64_t>(*rows)))
    return refuse("{} has a sampled_of below its own {} rows", name, *rows);

  TensorRecord& record = tensors.emplace_back();
  record = {};
  record.step = step;
  set_field(record.probe, probe);
  set_field(record.segment, segment);
  set_field(record.dtype, *dtype_text);
  record.rows = static_cast<std::int64_t>(*rows);
  record.cols = static_cast<std::int64_t>(cols);
  record.sampled_of = sampled_of != nullptr ? *sampled_of : 0;
  record.offset = bytes > 0 ? H5Dget_offset(dataset.get()) : 0;
  return {};
}

Result<void> Scanner::scan_tensors() {
  std::vector<TensorRecord> tensors;
  auto root = group("/tensors");
  if (!root)
    return root.error();
  const auto steps = links(root->get(), "/tensors");
  if (!steps)
    return steps.error();
  for (const Link& step : *steps) {
    std::int32_t number = 0;
    const char* end = step.name.data() + step.name.size();
    const auto [stop, error] = std::from_chars(step.name.data(), end, number);
    if (error != std::errc{} || stop != end || std::to_string(number) != step.name)
      return refuse("/tensors holds {}, which is no step", printable(step.name, 60));
    const std::string step_path = "/tensors/" + step.name;
    auto step_group = group(step_path);
    if (!step_group)
      return step_group.error();
    const auto probes = links(step_group->get(), step_path);
    if (!probes)
      return probes.error();
    for (const Link& probe : *probes) {
      if (probe.name.size() > sizeof TensorRecord{}.probe)
        return refuse("{} holds a probe whose name is longer than 80 bytes", step_path);
      const std::string probe_path = step_path + "/" + probe.name;
      auto probe_group = group(probe_path);
      if (!probe_group)
        return probe_group.error();
      const auto segments = links(probe_group->get(), printable(probe_path));
      if (!segments)
        return segments.error();
      for (const Link& segment : *segments) {
        if (!parse_segment(segment.name))
          return refuse("{} holds {}, which is no segment", printable(probe_path), printable(segment.name, 60));
        if (auto ok = scan_tensor(number, probe.name, segment.name, tensors); !ok)
          return ok;
      }
    }
  }
  send(Section::tensors, tensors.data(), tensors.size() * sizeof(TensorRecord));
  return {};
}

Result<void> Scanner::scan() {
  if (auto ok = open(); !ok)
    return ok;
  if (auto ok = check_format(); !ok)
    return ok;
  const Handle root = group_handle(H5Gopen2(file_.get(), "/", H5P_DEFAULT));
  const auto objects = links(root.get(), "/");
  if (!objects)
    return objects.error();
  const auto has = [&](std::string_view name) {
    return std::any_of(objects->begin(), objects->end(), [&](const Link& link) { return link.name == name; });
  };
  for (const char* name : {"run", "index", "steps"})
    if (!has(name))
      return refuse("/{} is missing", name);
  if (auto ok = scan_facts(); !ok)
    return ok;
  if (auto ok = scan_table<StepRecord>(step_table, Section::steps); !ok)
    return ok;
  if (auto ok = scan_table<IndexRecord>(index_table, Section::index); !ok)
    return ok;
  if (has("columns"))
    if (auto ok = scan_table<ColumnRecord>(column_table, Section::columns); !ok)
      return ok;
  if (has("dispatch"))
    if (auto ok = scan_table<DispatchRecord>(dispatch_table, Section::dispatch); !ok)
      return ok;
  if (has("unobserved"))
    if (auto ok = scan_table<UnobservedRecord>(unobserved_table, Section::unobserved); !ok)
      return ok;
  if (has("sketches")) {
    auto sketches = group("/sketches");
    if (!sketches)
      return sketches.error();
    const auto present = links(sketches->get(), "/sketches");
    if (!present)
      return present.error();
    constexpr Section tags[] = {Section::sketch64, Section::sketch128, Section::sketch256};
    for (std::size_t i = 0; i < std::size(tags); ++i)
      for (const Link& link : *present)
        if (link.name == fmt::format("k{}", sketch_sizes[i]))
          if (auto ok = scan_sketches(sketch_sizes[i], tags[i]); !ok)
            return ok;
  }
  if (has("tensors"))
    return scan_tensors();
  return {};
}

} // namespace

void scan_dump(int fd, std::uint64_t size, const std::string& path, int out) { Scanner(fd, size, path, out).run(); }

} // namespace h3diff::probes
