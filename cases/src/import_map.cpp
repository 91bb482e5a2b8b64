#include "import_map.hpp"
#include "data_folder.hpp"
#include "file.hpp"
#include "h3diff/cases/import.hpp"
#include "h3diff/cases/profile.hpp" // data_folder
#include "import_transforms.hpp"
#include "json.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace h3diff::cases {

using nlohmann::json;
using probes::printable;

namespace {

constexpr std::string_view number = "{n}";

std::optional<probes::DType> read_dtype(Fields& fields, const char* key) {
  std::string text;
  fields.text(key, text);
  if (text.empty())
    return std::nullopt;
  const auto dtype = probes::parse_dtype(text);
  if (!dtype || !probes::is_floating(*dtype))
    fields.fail(key, fmt::format("is \"{}\", which is no floating dtype", printable(text, 40)));
  return dtype;
}

bool flag(Fields& fields, const json& value, const char* key) {
  fields.ignore(key);
  if (!fields.has(key))
    return false;
  if (!value[key].is_boolean())
    fields.fail(key, "must be true or false");
  return value[key].is_boolean() && value[key].get<bool>();
}

bool one_number(const std::string& pattern) {
  const auto at = pattern.find(number);
  return at == std::string::npos || pattern.find(number, at + 1) == std::string::npos;
}

Result<MapEntry> read_entry(const json& value, const std::string& source, const std::string& where) {
  Fields fields(value, source, where);
  MapEntry entry;
  entry.where = where;
  std::string name, segment;
  fields.text("name", name);
  fields.texts("names", entry.names);
  fields.text("probe", entry.probe);
  fields.text("segment", segment);
  if (auto read = fields.finish(); !read)
    return read.error();
  if (name.empty() == entry.names.empty())
    fields.fail("name", "or a list in names is wanted, one of them");
  if (!name.empty())
    entry.names = {name};
  entry.ignore = flag(fields, value, "ignore");
  entry.optional = flag(fields, value, "optional");
  entry.guess = fields.has("guess");
  fields.ignore("guess");
  fields.ignore("comment");
  if (entry.probe.empty() != entry.ignore && !entry.guess)
    fields.fail("probe", "is wanted, unless the tensor is ignored");
  const bool numbered = entry.names.front().find(number) != std::string::npos;
  for (const std::string& one : entry.names)
    if (!one_number(one) || (one.find(number) != std::string::npos) != numbered)
      fields.fail("name", "may have {n} once, and all names alike");
  if (!one_number(entry.probe) ||
      (!entry.ignore && !entry.guess && (entry.probe.find(number) != std::string::npos) != numbered))
    fields.fail("probe", "must have {n} as often as the name");
  if (!segment.empty()) {
    entry.segment = probes::parse_segment(segment);
    if (!entry.segment)
      fields.fail("segment", fmt::format("is \"{}\", which is no segment", printable(segment, 40)));
  }
  entry.compute_dtype = read_dtype(fields, "compute_dtype");
  fields.ignore("transforms");
  bool joined = entry.names.size() == 1;
  if (fields.has("transforms")) {
    if (!value["transforms"].is_array())
      fields.fail("transforms", "must be a list of objects");
    else
      for (std::size_t i = 0; i < value["transforms"].size(); ++i) {
        auto transform = parse_transform(value["transforms"][i], source, fmt::format("{}.transforms[{}]", where, i));
        if (!transform)
          return transform.error();
        joined |= transform->op == "concatenate" || transform->op == "add";
        entry.transforms.push_back(*std::move(transform));
      }
  }
  if (!joined)
    fields.fail("names", "has several tensors, so transforms must concatenate or add them");
  if (auto read = fields.finish_strict(); !read)
    return read.error();
  return entry;
}

Result<void> load(const std::string& wanted, std::vector<std::string> heirs, ImportMap& map) {
  const bool file = wanted.find('/') != std::string::npos || wanted.ends_with(".json");
  const auto names = map_names();
  if (!file && std::find(names.begin(), names.end(), wanted) == names.end()) {
    const std::string fact =
        fmt::format("unknown map \"{}\"; built in are {}", printable(wanted, 60), fmt::join(names, ", "));
    return heirs.empty() ? usage_error(fact) : bad_input(fmt::format("{}: inherits an {}", heirs.back(), fact));
  }
  const std::string path = file ? wanted : join(join(data_folder(), "maps"), wanted + ".json");
  if (std::find(heirs.begin(), heirs.end(), path) != heirs.end())
    return bad_input(fmt::format("{}: inherits itself", path));
  auto text = read_text(path);
  if (!text)
    return text.error();
  auto document = parse_json(*text, path);
  if (!document)
    return document.error();
  Fields fields(*document, path);
  MapLayer layer;
  layer.source = path;
  layer.inherited = !heirs.empty() || !file;
  std::string parent, aliases, ignored;
  fields.text("name", ignored);
  fields.text("description", ignored);
  fields.text("inherits", parent);
  fields.text("aliases", aliases);
  fields.texts("strip_prefixes", layer.strip_prefixes);
  layer.reverse_dims = document->is_object() && flag(fields, *document, "reverse_dims");
  const auto compute_dtype = read_dtype(fields, "compute_dtype");
  if (!aliases.empty()) {
    for (const probes::AliasTable& table : probes::builtin_aliases())
      if (table.port() == aliases)
        layer.aliases = &table;
    if (layer.aliases == nullptr)
      fields.fail("aliases", fmt::format("names \"{}\", for which there is no table", printable(aliases, 40)));
  }
  fields.ignore("tensors");
  if (fields.has("tensors")) {
    if (!(*document)["tensors"].is_array())
      fields.fail("tensors", "must be a list of objects");
    else
      for (std::size_t i = 0; i < (*document)["tensors"].size(); ++i) {
        auto entry = read_entry((*document)["tensors"][i], path, fmt::format("tensors[{}]", i));
        if (!entry)
          return entry.error();
        entry->optional |= layer.inherited;
        layer.entries.push_back(*std::move(entry));
      }
  }
  std::vector<std::pair<std::string, probes::DType>> dtypes;
  fields.ignore("compute_dtypes");
  if (fields.has("compute_dtypes")) {
    const json& list = (*document)["compute_dtypes"];
    for (const json& item : list.is_array() ? list : json::array({0})) {
      const bool pair = item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string();
      const auto dtype = pair ? probes::parse_dtype(item[1].get<std::string>()) : std::nullopt;
      if (!dtype)
        fields.fail("compute_dtypes", "must be a list of pairs [glob of probes, dtype]");
      else
        dtypes.emplace_back(item[0].get<std::string>(), *dtype);
    }
  }
  if (auto read = fields.finish_strict(); !read)
    return read;
  map.layers.push_back(std::move(layer));
  if (!parent.empty()) {
    heirs.push_back(path);
    if (auto inherited = load(parent, std::move(heirs), map); !inherited)
      return inherited;
  }
  if (compute_dtype)
    map.compute_dtype = compute_dtype;
  map.compute_dtypes.insert(map.compute_dtypes.end(), dtypes.begin(), dtypes.end());
  return {};
}

bool same_elements(const SourceTensor& a, const SourceTensor& b) {
  return a.tensor.dtype == b.tensor.dtype && std::ranges::equal(a.tensor.bytes, b.tensor.bytes);
}

class Assigner {
public:
  Assigner(const ImportMap& map, const ImportSource& source, const probes::Graph& graph)
      : map_(map), source_(source), graph_(graph), used_(source.tensors.size(), false) {}

  Result<Assignments> operator()() {
    for (const MapLayer& layer : map_.layers) {
      next_layer();
      for (const MapEntry& entry : layer.entries)
        if (auto matched = entry_of(layer, entry); !matched)
          return matched.error();
      if (layer.aliases == nullptr)
        continue;
      next_layer();
      for (std::size_t i = 0; i < source_.tensors.size(); ++i)
        if (const auto probe =
                used_before_[i] ? std::nullopt : layer.aliases->canonical(bare(layer, source_.tensors[i].name)))
          if (graph_.find(*probe) != nullptr) // a table lists weights and probes of every form of the model
            if (auto added = add({&layer, nullptr, {&source_.tensors[i]}, *probe, {}, 0}, i); !added)
              return added.error();
    }
    next_layer();
    for (std::size_t i = 0; i < source_.tensors.size(); ++i)
      if (!used_before_[i])
        if (auto added = by_own_name(i); !added)
          return added.error();
    // By what comes first among the parts, so that the order of the source is that of the dump.
    std::stable_sort(out_.list.begin(), out_.list.end(),
                     [](const Assignment& a, const Assignment& b) { return a.parts.front() < b.parts.front(); });
    for (std::size_t i = 0; i < source_.tensors.size(); ++i)
      if (!used_[i])
        out_.not_imported.push_back(source_.tensors[i].name);
    return std::move(out_);
  }

private:
  const ImportMap& map_;
  const ImportSource& source_;
  const probes::Graph& graph_;
  Assignments out_;
  std::vector<bool> used_, used_before_;                        // by any layer, by a nearer one
  std::map<std::pair<int, std::string>, std::size_t> by_probe_; // "probe" or "probe/segment" -> index in out_.list
  std::set<std::pair<int, std::string>> hidden_;                // probes that a nearer layer gives

  void next_layer() {
    used_before_ = used_;
    for (const auto& [key, unused] : by_probe_)
      hidden_.insert({key.first, key.second.substr(0, key.second.find('/'))});
  }

  static std::string_view bare(const MapLayer& layer, std::string_view name) {
    for (const std::string& prefix : layer.strip_prefixes)
      if (name.starts_with(prefix))
        return name.substr(prefix.size());
    return name;
  }

  static Error wrong(const MapLayer& layer, const MapEntry& entry, const std::string& fact) {
    return bad_input(fmt::format("{}: {} {}", layer.source, entry.where, fact));
  }

  Result<void> entry_of(const MapLayer& layer, const MapEntry& entry) {
    if (entry.guess)
      return wrong(
          layer, entry,
          fmt::format("({}) is still a guess: delete its \"guess\" to accept it", printable(entry.names.front())));
    bool any = false;
    for (std::size_t i = 0; i < source_.tensors.size(); ++i) {
      const SourceTensor& first = source_.tensors[i];
      const auto digits = match_pattern(entry.names.front(), bare(layer, first.name));
      if (!digits)
        continue;
      any = true;
      if (used_before_[i])
        continue;
      if (entry.ignore) {
        used_[i] = true;
        continue;
      }
      Assignment assignment{&layer, &entry, {&first}, fill_pattern(entry.probe, *digits), entry.segment, 0};
      std::vector<std::size_t> others;
      for (std::size_t part = 1; part < entry.names.size(); ++part) {
        const std::string wanted = fill_pattern(entry.names[part], *digits);
        const auto found = std::ranges::find_if(source_.tensors, [&](const SourceTensor& tensor) {
          return tensor.step == first.step && bare(layer, tensor.name) == wanted;
        });
        if (found == source_.tensors.end())
          return wrong(layer, entry,
                       fmt::format("names the tensor {}, which {} does not hold for step {}", printable(wanted),
                                   source_.path, first.step));
        assignment.parts.push_back(&*found);
        others.push_back(static_cast<std::size_t>(found - source_.tensors.begin()));
      }
      if (graph_.find(assignment.probe) == nullptr) {
        if (layer.inherited)
          continue;
        return wrong(
            layer, entry,
            fmt::format("names the probe {}, which the bundle's model does not have", printable(assignment.probe)));
      }
      if (auto added = add(std::move(assignment), i); !added)
        return added;
      for (const std::size_t other : others)
        used_[other] = true;
    }
    if (!any && !entry.optional)
      return wrong(
          layer, entry,
          fmt::format("names the tensor {}, which {} does not hold", printable(entry.names.front()), source_.path));
    return {};
  }

  Result<void> by_own_name(std::size_t i) {
    std::string name = source_.tensors[i].name;
    std::optional<probes::Segment> segment;
    if (const auto slash = name.rfind('/'); slash != std::string::npos) {
      segment = probes::parse_segment(name.substr(slash + 1));
      if (segment)
        name.resize(slash);
    }
    if (graph_.find(name) == nullptr)
      return {};
    return add({nullptr, nullptr, {&source_.tensors[i]}, name, segment, 0}, i);
  }

  Result<void> add(Assignment assignment, std::size_t tensor) {
    const probes::ProbeInfo& info = *graph_.find(assignment.probe);
    const SourceTensor& source = *assignment.parts.front();
    assignment.step = info.weight ? -1 : source.step;
    if (!info.weight && source.step < 0)
      return bad_input(fmt::format("{}: {} is of step -1, but {} is no weight", source.file, printable(source.name),
                                   assignment.probe));
    if (hidden_.contains({assignment.step, assignment.probe}))
      return {};
    const std::string whole = assignment.probe;
    const std::string key = assignment.segment ? fmt::format("{}/{}", whole, probes::name(*assignment.segment)) : whole;
    auto rival = by_probe_.find({assignment.step, key});
    if (rival == by_probe_.end()) { // a whole tensor and a segment of it are rivals too
      rival = assignment.segment ? by_probe_.find({assignment.step, whole})
                                 : by_probe_.lower_bound({assignment.step, whole + "/"});
      if (rival != by_probe_.end() && !assignment.segment &&
          (rival->first.first != assignment.step || !rival->first.second.starts_with(whole + "/")))
        rival = by_probe_.end();
    }
    if (rival != by_probe_.end()) {
      const Assignment& other = out_.list[rival->second];
      const bool same = !assignment.entry && !other.entry && other.segment == assignment.segment &&
                        same_elements(source, *other.parts.front());
      used_[tensor] = true;
      if (same) // a module and its last child
        return {};
      return bad_input(fmt::format("{}: {} and {} are both mapped onto {} of step {}",
                                   assignment.layer ? assignment.layer->source : source.file,
                                   printable(other.parts.front()->name), printable(source.name), key, assignment.step));
    }
    used_[tensor] = true;
    by_probe_[{assignment.step, key}] = out_.list.size();
    out_.list.push_back(std::move(assignment));
    return {};
  }
};

} // namespace

std::optional<std::string> match_pattern(std::string_view pattern, std::string_view name) {
  const auto at = pattern.find(number);
  if (at == std::string_view::npos)
    return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + number.size());
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  const std::string_view digits = name.substr(before.size(), name.size() - before.size() - after.size());
  const bool plain = std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!plain || (digits.size() > 1 && digits.front() == '0'))
    return std::nullopt;
  return std::string(digits);
}

std::string fill_pattern(std::string pattern, const std::string& digits) {
  if (const auto at = pattern.find(number); at != std::string::npos)
    pattern.replace(at, number.size(), digits);
  return pattern;
}

std::vector<std::string> map_names() { return data_names("maps"); }

Result<ImportMap> load_map(const std::string& name_or_file) {
  ImportMap map;
  map.name = name_or_file;
  if (!name_or_file.empty())
    if (auto loaded = load(name_or_file, {}, map); !loaded)
      return loaded.error();
  return map;
}

Result<Assignments> assign(const ImportMap& map, const ImportSource& source, const probes::Graph& graph) {
  return Assigner(map, source, graph)();
}

} // namespace h3diff::cases
