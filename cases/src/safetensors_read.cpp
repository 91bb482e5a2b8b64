#include "file.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include "json.hpp"
#include "safetensors_format.hpp"
#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unordered_map>

namespace h3diff::cases {

using nlohmann::json;
using probes::DType;

namespace {

constexpr std::array<SafetensorsDType, 22> dtypes{{
    {"F64", 64, DType::float64},
    {"F32", 32, DType::float32},
    {"BF16", 16, DType::bfloat16},
    {"F16", 16, DType::float16},
    {"F8_E4M3", 8, DType::float8_e4m3fn},
    {"F8_E5M2", 8, DType::float8_e5m2},
    {"I8", 8, DType::int8},
    {"U8", 8, DType::uint8},
    {"I32", 32, DType::int32},
    {"I64", 64, DType::int64},
    {"BOOL", 8, DType::boolean},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},
    {"C64", 64, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F4", 4, std::nullopt},
}};

std::uint64_t little_endian_64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i)
    value |= std::uint64_t{std::to_integer<std::uint64_t>(bytes[i])} << (8 * i);
  return value;
}

std::optional<std::uint64_t> natural(const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
    return std::nullopt;
  return value.get<std::uint64_t>();
}

struct Located {
  TensorEntry entry;
  std::uint64_t begin = 0, end = 0;
};

// Returns the fact that is wrong with one header entry, or nothing and fills `out`.
std::optional<std::string> read_entry(const json& value, Located& out) {
  if (!value.is_object())
    return "is not a JSON object";
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!value.contains(key))
      return fmt::format("has no \"{}\"", key);
  const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  if (!dtype.is_string())
    return "has a dtype that is not a string";
  out.entry.dtype_name = dtype.get<std::string>();
  const SafetensorsDType* known = find_dtype(out.entry.dtype_name);
  if (!known)
    return fmt::format("has the unknown dtype \"{}\"", probes::printable(out.entry.dtype_name, 40));
  out.entry.dtype = known->probe;

  if (!shape.is_array())
    return "has a shape that is not a list";
  std::uint64_t bits = static_cast<std::uint64_t>(known->bits);
  bool overflow = false;
  for (const json& dimension : shape) {
    const auto size = natural(dimension);
    if (!size)
      return "has a shape with something other than non-negative integers";
    out.entry.shape.push_back(static_cast<std::int64_t>(*size));
    overflow |= __builtin_mul_overflow(bits, *size, &bits);
  }
  if (overflow)
    return "has a shape whose size overflows";
  if (bits % 8 != 0)
    return "does not fill whole bytes";

  if (!offsets.is_array() || offsets.size() != 2 || !natural(offsets[0]) || !natural(offsets[1]))
    return "has data_offsets that are not two non-negative integers";
  out.begin = *natural(offsets[0]);
  out.end = *natural(offsets[1]);
  if (out.end < out.begin)
    return fmt::format("ends at byte {}, before its start {}", out.end, out.begin);
  if (out.end - out.begin != bits / 8)
    return fmt::format("takes {} bytes, but {} of shape [{}] needs {}", out.end - out.begin, known->name,
                       fmt::join(out.entry.shape, ","), bits / 8);
  return std::nullopt;
}

} // namespace

const SafetensorsDType* find_dtype(std::string_view name) {
  const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.name == name; });
  return found == dtypes.end() ? nullptr : &*found;
}

std::string_view safetensors_name(DType dtype) {
  return std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.probe == dtype; })->name;
}

std::int64_t TensorEntry::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape)
    count *= size;
  return count;
}

struct SafetensorsFile::Mapping {
  std::string path;
  std::shared_ptr<const MappedFile> file;
  std::vector<TensorEntry> tensors;
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::map<std::string, std::string> metadata;
};

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.error();
  const std::span<const std::byte> bytes = (*mapped)->bytes();
  if (bytes.size() < 8)
    return bad_input(fmt::format("{}: is {} bytes long, too short for a safetensors file", path, bytes.size()));
  const std::uint64_t header_bytes = little_endian_64(bytes);
  if (header_bytes > bytes.size() - 8)
    return bad_input(fmt::format("{}: the header claims {} bytes, but the file has {} after its length field", path,
                                 header_bytes, bytes.size() - 8));
  if (header_bytes > max_header_bytes)
    return bad_input(fmt::format("{}: the header claims {} bytes, more than the format's limit of {}", path,
                                 header_bytes, max_header_bytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  if (text.empty() || text.front() != '{')
    return bad_input(fmt::format("{}: the header does not start with '{{'", path));
  auto header = parse_json(text, path);
  if (!header)
    return header.error();
  const std::span<const std::byte> data = bytes.subspan(8 + header_bytes);

  auto mapping = std::make_shared<Mapping>();
  mapping->path = path;
  mapping->file = *mapped;
  std::vector<Located> located;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") {
      if (!value.is_object())
        return bad_input(fmt::format("{}: __metadata__ is not a JSON object", path));
      for (const auto& [key, text_value] : value.items()) {
        if (!text_value.is_string())
          return bad_input(fmt::format("{}: __metadata__ has a value that is not a string", path));
        mapping->metadata[key] = text_value.get<std::string>();
      }
      continue;
    }
    Located tensor;
    tensor.entry.name = name;
    if (const auto fact = read_entry(value, tensor))
      return bad_input(fmt::format("{}: tensor {} {}", path, probes::printable(name), *fact));
    located.push_back(std::move(tensor));
  }
  std::sort(located.begin(), located.end(), [](const Located& a, const Located& b) {
    return std::tie(a.begin, a.end, a.entry.name) < std::tie(b.begin, b.end, b.entry.name);
  });
  std::uint64_t expected = 0;
  for (Located& tensor : located) {
    const std::string name = probes::printable(tensor.entry.name);
    if (tensor.begin < expected)
      return bad_input(fmt::format("{}: tensor {} starts at byte {}, inside the tensor before it, which ends at {}",
                                   path, name, tensor.begin, expected));
    if (tensor.begin > expected)
      return bad_input(
          fmt::format("{}: nothing describes bytes {} to {}, before tensor {}", path, expected, tensor.begin, name));
    if (tensor.end > data.size())
      return bad_input(fmt::format("{}: tensor {} ends at byte {}, but the file has {} bytes of data", path, name,
                                   tensor.end, data.size()));
    expected = tensor.end;
    tensor.entry.bytes = data.subspan(tensor.begin, tensor.end - tensor.begin);
    mapping->tensors.push_back(std::move(tensor.entry));
  }
  if (expected != data.size())
    return bad_input(fmt::format("{}: {} bytes follow the last tensor", path, data.size() - expected));
  for (std::size_t i = 0; i < mapping->tensors.size(); ++i)
    mapping->by_name[mapping->tensors[i].name] = i;

  SafetensorsFile file;
  file.mapping_ = std::move(mapping);
  return file;
}

const std::string& SafetensorsFile::path() const { return mapping_->path; }
const std::vector<TensorEntry>& SafetensorsFile::tensors() const { return mapping_->tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return mapping_->metadata; }

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = mapping_->by_name.find(name);
  return found == mapping_->by_name.end() ? nullptr : &mapping_->tensors[found->second];
}

} // namespace h3diff::cases
