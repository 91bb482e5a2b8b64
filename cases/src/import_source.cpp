#include "import_source.hpp"
#include "file.hpp"
#include "h3diff/cases/npy.hpp"
#include "h3diff/cases/safetensors.hpp"
#include "json.hpp"
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <set>

namespace h3diff::cases {
namespace fs = std::filesystem;

using nlohmann::json;
using probes::DType;
using probes::printable;

namespace {

constexpr int last_step = 1'000'000;

// "step12/name": 12 and "name".
std::optional<int> step_prefix(std::string_view& name) {
  if (!name.starts_with("step"))
    return std::nullopt;
  int step = 0;
  const auto parsed = std::from_chars(name.data() + 4, name.data() + name.size(), step);
  if (parsed.ec != std::errc{} || parsed.ptr == name.data() + name.size() || *parsed.ptr != '/' || step < 0 ||
      step > last_step)
    return std::nullopt;
  name.remove_prefix(static_cast<std::size_t>(parsed.ptr - name.data()) + 1);
  return step;
}

// What dump.json says about one tensor.
struct Stated {
  std::string file;
  std::optional<DType> dtype, compute_dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<int> step;
  bool seen = false;
};

struct Description {
  std::map<std::string, Stated> tensors;
  std::vector<std::string> order;
  int step = 0;
  bool has_step = false;
};

void read_dtype(Fields& fields, const char* key, std::optional<DType>& out) {
  std::string text;
  fields.text(key, text);
  if (text.empty())
    return;
  out = probes::parse_dtype(text);
  if (!out)
    fields.fail(key, fmt::format("is \"{}\", which is no dtype", printable(text, 40)));
}

Result<Stated> read_stated(const json& value, const std::string& source, const std::string& name) {
  Fields fields(value, source, fmt::format("tensors.{}", printable(name)));
  Stated stated;
  fields.text("file", stated.file);
  if (stated.file.find('/') != std::string::npos)
    fields.fail("file", "must be a file's name in the folder itself, without '/'");
  read_dtype(fields, "dtype", stated.dtype);
  read_dtype(fields, "compute_dtype", stated.compute_dtype);
  if (fields.has("shape")) {
    stated.shape.emplace();
    fields.integers("shape", *stated.shape, 0, std::int64_t{1} << 40);
  }
  if (fields.has("step")) {
    stated.step = 0;
    fields.integer("step", *stated.step, -1, last_step);
  }
  if (auto done = fields.finish_strict(); !done)
    return done.error();
  return stated;
}

// Facts that a producer may state about itself; the bundle states the others.
constexpr const char* own_facts[] = {"pipeline", "pipeline_version", "profile", "device", "threads", "isa", "torch",
                                     "cuda",     "driver",           "sm"};

Result<void> read_lists(Fields& fields, const json& document, const std::string& path, ImportSource& source) {
  const auto list = [&](const char* key) -> const json* {
    fields.ignore(key);
    if (!fields.has(key))
      return nullptr;
    if (!document[key].is_array()) {
      fields.fail(key, "must be a list of objects");
      return nullptr;
    }
    return &document[key];
  };
  const auto where = [](const char* key, std::size_t i) { return fmt::format("{}[{}]", key, i); };
  if (const json* rows = list("sigmas"))
    for (std::size_t i = 0; i < rows->size(); ++i) {
      Fields row((*rows)[i], path, where("sigmas", i));
      probes::StepRow step;
      step.sigma_video_next = step.sigma_audio_next = std::numeric_limits<double>::quiet_NaN();
      row.integer("step", step.step, 0, last_step);
      for (const char* key : {"step", "sigma_video", "sigma_audio"})
        if (!row.has(key))
          row.fail(key, "is missing");
      row.number("sigma_video", step.sigma_video, -1e-9);
      row.number("sigma_audio", step.sigma_audio, -1e-9);
      row.number("sigma_video_next", step.sigma_video_next, -1e-9);
      row.number("sigma_audio_next", step.sigma_audio_next, -1e-9);
      for (const probes::StepRow& other : source.sigmas)
        if (other.step == step.step)
          row.fail("step", fmt::format("repeats step {}", step.step));
      fields.merge(row.finish_strict());
      source.sigmas.push_back(step);
    }
  if (const json* rows = list("dispatch"))
    for (std::size_t i = 0; i < rows->size(); ++i) {
      Fields row((*rows)[i], path, where("dispatch", i));
      probes::DispatchRow dispatch;
      row.text("op", dispatch.op);
      row.text("implementation", dispatch.implementation);
      row.text("declared", dispatch.declared);
      row.integer("calls", dispatch.calls, 0, std::numeric_limits<std::int64_t>::max());
      row.integer("fallbacks", dispatch.fallbacks, 0, std::numeric_limits<std::int64_t>::max());
      if (dispatch.op.empty() || dispatch.implementation.empty())
        row.fail("op", "and implementation are wanted");
      if (dispatch.op.size() > 32 || dispatch.implementation.size() > 64 || dispatch.declared.size() > 64)
        row.fail("op", "or an implementation is longer than the dump's 32 and 64 bytes");
      fields.merge(row.finish_strict());
      source.dispatch.push_back(std::move(dispatch));
    }
  if (const json* rows = list("unobserved"))
    for (std::size_t i = 0; i < rows->size(); ++i) {
      Fields row((*rows)[i], path, where("unobserved", i));
      probes::Unobserved unobserved;
      row.text("probe", unobserved.probe);
      row.text("reason", unobserved.reason);
      if (unobserved.probe.empty() || unobserved.reason.empty())
        row.fail("probe", "and reason are wanted");
      if (unobserved.probe.size() > 80 || unobserved.reason.size() > 160)
        row.fail("probe", "or reason is longer than the dump's 80 and 160 bytes");
      fields.merge(row.finish_strict());
      source.unobserved.push_back(std::move(unobserved));
    }
  return fields.finish();
}

Result<Description> read_description(const std::string& path, ImportSource& source) {
  auto text = read_text(path);
  if (!text)
    return text.error();
  auto document = parse_json(*text, path);
  if (!document)
    return document.error();
  Fields fields(*document, path);
  Description description;
  description.has_step = fields.has("step");
  fields.integer("step", description.step, -1, last_step);
  fields.texts("order", description.order);
  read_dtype(fields, "compute_dtype", source.compute_dtype);
  for (const char* key : {"pipeline", "pipeline_version"}) {
    std::string value;
    fields.text(key, value);
    if (!value.empty())
      source.facts[key] = value;
  }
  if (const json* facts = fields.object("facts"))
    for (const auto& [key, value] : facts->items()) {
      if (std::find(std::begin(own_facts), std::end(own_facts), key) == std::end(own_facts)) {
        fields.fail("facts",
                    fmt::format("has \"{}\", which is none of the facts that a producer states", printable(key)));
        break;
      }
      const bool whole = key == "threads";
      if (whole ? !value.is_number_integer() : !value.is_string())
        fields.fail("facts", fmt::format("must give \"{}\" {}", key, whole ? "an integer" : "a string"));
      else if (whole)
        source.facts[key] = value.get<std::int64_t>();
      else
        source.facts[key] = value.get<std::string>();
    }
  if (auto read = read_lists(fields, *document, path, source); !read)
    return read.error();
  if (const json* tensors = fields.object("tensors"))
    for (const auto& [name, value] : tensors->items()) {
      auto stated = read_stated(value, path, name);
      if (!stated)
        return stated.error();
      description.tensors.emplace(name, *std::move(stated));
    }
  if (auto done = fields.finish_strict(); !done)
    return done.error();
  return description;
}

class Reader {
public:
  Reader(ImportSource& source, Description description, bool described)
      : source_(source), description_(std::move(description)), described_(described) {}

  Result<void> folder(const std::string& path, const std::string& prefix) {
    for (const std::string& file : file_names(path)) {
      const std::string full = join(path, file), stem = fs::path(file).stem().string();
      Result<void> read;
      if (file.ends_with(".safetensors"))
        read = safetensors(full, prefix);
      else if (file.ends_with(".npy"))
        read = npy(full, prefix + name_of(file, stem));
      else if (file.ends_with(".bin"))
        read = raw(full, prefix + name_of(file, stem));
      if (!read)
        return read;
    }
    return {};
  }

  Result<void> finish() {
    for (const auto& [name, stated] : description_.tensors)
      if (!stated.seen)
        return bad_input(
            fmt::format("{}: describes the tensor {}, which the folder does not hold", json_path(), printable(name)));
    if (description_.order.empty())
      return {};
    std::map<std::string, std::size_t> place;
    for (const std::string& name : description_.order)
      if (!place.emplace(name, place.size()).second)
        return bad_input(fmt::format("{}: order has {} twice", json_path(), printable(name)));
    std::set<std::string> known;
    for (const SourceTensor& tensor : source_.tensors)
      known.insert(tensor.name);
    for (const std::string& name : description_.order)
      if (!known.contains(name))
        return bad_input(
            fmt::format("{}: order names the tensor {}, which the folder does not hold", json_path(), printable(name)));
    const auto rank = [&](const SourceTensor& tensor) {
      const auto found = place.find(tensor.name);
      return found == place.end() ? place.size() : found->second;
    };
    std::stable_sort(source_.tensors.begin(), source_.tensors.end(),
                     [&](const SourceTensor& a, const SourceTensor& b) { return rank(a) < rank(b); });
    source_.ordered = true;
    return {};
  }

private:
  ImportSource& source_;
  Description description_;
  bool described_;
  std::set<std::pair<int, std::string>> taken_;

  std::string json_path() const { return join(source_.path, "dump.json"); }

  // Names that no file may have ("a/b") stand in dump.json beside their file.
  std::string name_of(const std::string& file, const std::string& stem) const {
    for (const auto& [name, stated] : description_.tensors)
      if (stated.file == file)
        return name;
    return stem;
  }

  Stated* stated(const std::string& name) {
    const auto found = description_.tensors.find(name);
    if (found == description_.tensors.end())
      return nullptr;
    found->second.seen = true;
    return &found->second;
  }

  Result<void> contradiction(const std::string& name, const std::string& file, const std::string& fact) const {
    return bad_input(
        fmt::format("{}: says that {} {}, which {} contradicts", json_path(), printable(name), fact, file));
  }

  Result<void> add(const std::string& full_name, SourceTensor tensor) {
    std::string_view name = full_name;
    if (const auto step = step_prefix(name)) {
      tensor.step = *step;
      tensor.step_given = true;
    } else if (described_ && description_.has_step) {
      tensor.step = description_.step;
      tensor.step_given = true;
    }
    tensor.name = std::string(name);
    Stated* said = stated(full_name);
    if (said) {
      if (said->dtype && *said->dtype != tensor.tensor.dtype)
        return contradiction(full_name, tensor.file, fmt::format("is {}", probes::name(*said->dtype)));
      std::vector<std::int64_t> shape = tensor.tensor.shape;
      if (tensor.fortran)
        std::reverse(shape.begin(), shape.end());
      if (said->shape && *said->shape != shape)
        return contradiction(full_name, tensor.file, fmt::format("has shape {}", shape_text(*said->shape)));
      if (said->step) {
        tensor.step = *said->step;
        tensor.step_given = true;
      }
      tensor.compute_dtype = said->compute_dtype;
    }
    if (!taken_.emplace(tensor.step, tensor.name).second)
      return bad_input(fmt::format("{}: holds {} of step {} again", tensor.file, printable(tensor.name), tensor.step));
    source_.tensors.push_back(std::move(tensor));
    return {};
  }

  Result<void> safetensors(const std::string& path, const std::string& prefix) {
    auto file = SafetensorsFile::open(path);
    if (!file)
      return file.error();
    const auto owner = std::make_shared<const SafetensorsFile>(*file);
    for (const TensorEntry& entry : file->tensors()) {
      if (!entry.dtype)
        return bad_input(fmt::format("{}: tensor {} is {}, which probes do not know", path, printable(entry.name),
                                     entry.dtype_name));
      SourceTensor tensor;
      tensor.file = path;
      tensor.tensor = {*entry.dtype, entry.shape, entry.bytes, owner};
      if (auto added = add(prefix + entry.name, std::move(tensor)); !added)
        return added;
    }
    return {};
  }

  Result<void> npy(const std::string& path, const std::string& name) {
    auto array = open_npy(path);
    if (!array)
      return array.error();
    SourceTensor tensor;
    tensor.file = path;
    if (!array->dtype) {
      const auto found = description_.tensors.find(name);
      const bool known = found != description_.tensors.end() && found->second.dtype &&
                         probes::item_size(*found->second.dtype) == array->item_size;
      if (!known)
        return bad_input(fmt::format("{}: holds raw elements of {} bytes ({}); dump.json must say their dtype", path,
                                     array->item_size, array->descr));
      array->dtype = found->second.dtype;
    }
    tensor.fortran = array->fortran && array->shape.size() > 1;
    if (tensor.fortran)
      std::reverse(array->shape.begin(), array->shape.end());
    tensor.tensor = {*array->dtype, array->shape, array->bytes, array->file};
    return add(name, std::move(tensor));
  }

  Result<void> raw(const std::string& path, const std::string& name) {
    const auto found = description_.tensors.find(name);
    if (found == description_.tensors.end() || !found->second.dtype || !found->second.shape)
      return bad_input(fmt::format("{}: is a raw file; dump.json must give its dtype and shape", path));
    auto mapped = MappedFile::open(path);
    if (!mapped)
      return mapped.error();
    SourceTensor tensor;
    tensor.file = path;
    tensor.tensor = {*found->second.dtype, *found->second.shape, (*mapped)->bytes(), *mapped};
    std::uint64_t wanted = probes::item_size(tensor.tensor.dtype);
    bool overflow = false;
    for (const std::int64_t size : tensor.tensor.shape)
      overflow |= __builtin_mul_overflow(wanted, static_cast<std::uint64_t>(size), &wanted);
    if (overflow || wanted != tensor.tensor.bytes.size())
      return bad_input(fmt::format("{}: is {} bytes long, but {} {} of dump.json needs {}", path,
                                   tensor.tensor.bytes.size(), probes::name(tensor.tensor.dtype),
                                   shape_text(tensor.tensor.shape),
                                   overflow ? "more than there can be" : fmt::format("{}", wanted)));
    return add(name, std::move(tensor));
  }
};

} // namespace

const SourceTensor* ImportSource::find(int step, std::string_view name) const {
  for (const SourceTensor& tensor : tensors)
    if (tensor.step == step && tensor.name == name)
      return &tensor;
  return nullptr;
}

ImportTensor ImportSource::load(const SourceTensor& source) {
  ImportTensor tensor = source.tensor;
  if (source.fortran) {
    std::vector<std::int64_t> order(tensor.shape.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = static_cast<std::int64_t>(order.size() - 1 - i);
    (void)transpose(tensor, order); // a permutation by construction
  }
  return tensor;
}

Result<ImportSource> open_import_source(const std::string& path) {
  if (!folder_exists(path))
    return bad_input(fmt::format("{}: is not a folder", path));
  ImportSource source;
  source.path = path;
  Description description;
  const std::string json_path = join(path, "dump.json");
  const bool described = file_exists(json_path);
  if (described) {
    auto read = read_description(json_path, source);
    if (!read)
      return read.error();
    description = *std::move(read);
  }
  Reader reader(source, std::move(description), described);
  if (auto read = reader.folder(path, ""); !read)
    return read.error();
  std::vector<std::string> folders;
  std::error_code ignored;
  for (auto entry = fs::directory_iterator(path, ignored); !ignored && entry != fs::directory_iterator();
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string() + "/x";
    std::string_view rest = name;
    if (std::error_code unreadable; entry->is_directory(unreadable) && step_prefix(rest))
      folders.push_back(entry->path().filename().string());
  }
  std::sort(folders.begin(), folders.end());
  for (const std::string& folder : folders)
    if (auto read = reader.folder(join(path, folder), folder + "/"); !read)
      return read.error();
  if (auto done = reader.finish(); !done)
    return done.error();
  if (source.tensors.empty())
    return bad_input(fmt::format("{}: holds no .safetensors, .npy or .bin file with a tensor", path));
  return source;
}

} // namespace h3diff::cases
