#include "h3diff/cases/profile.hpp"
#include "data_folder.hpp"
#include "file.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include "json.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace h3diff::cases {

using nlohmann::json;

namespace {

void read_dtype(Fields& fields, const char* key, probes::DType& out) {
  std::string text;
  fields.text(key, text);
  if (text.empty())
    return;
  const auto dtype = probes::parse_dtype(text);
  if (!dtype || !probes::is_floating(*dtype))
    return fields.fail(key, fmt::format("is \"{}\", which is no floating dtype", probes::printable(text, 40)));
  out = *dtype;
}

Result<Profile> load(const std::string& wanted, std::vector<std::string> heirs) {
  const auto names = profile_names();
  if (std::find(names.begin(), names.end(), wanted) == names.end()) {
    const std::string known = names.empty() ? fmt::format("there are none in {}", data_folder())
                                            : fmt::format("known are {}", fmt::join(names, ", "));
    if (heirs.empty())
      return usage_error(fmt::format("unknown profile \"{}\"; {}", probes::printable(wanted, 60), known));
    return bad_input(fmt::format("profile {} inherits \"{}\", which does not exist; {}", heirs.back(),
                                 probes::printable(wanted, 60), known));
  }
  if (std::find(heirs.begin(), heirs.end(), wanted) != heirs.end())
    return bad_input(fmt::format("profile {} inherits itself ({} -> {})", wanted, fmt::join(heirs, " -> "), wanted));

  const std::string path = join(join(data_folder(), "profiles"), wanted + ".json");
  auto text = read_text(path);
  if (!text)
    return text.error();
  auto parsed = parse_json(*text, path);
  if (!parsed)
    return parsed.error();
  Fields fields(*parsed, path);
  std::string name, parent;
  fields.text("name", name);
  if (name != wanted)
    fields.fail("name", fmt::format("must be \"{}\", as the file is called", wanted));
  fields.text("inherit", parent);

  Profile profile;
  if (!parent.empty()) {
    heirs.push_back(wanted);
    auto inherited = load(parent, std::move(heirs));
    if (!inherited)
      return inherited.error();
    profile = std::move(*inherited);
  }
  profile.name = wanted;
  profile.description.clear();
  fields.text("description", profile.description);
  fields.text("source", profile.source);
  read_dtype(fields, "compute_dtype", profile.compute_dtype);
  read_dtype(fields, "island_dtype", profile.island_dtype);
  if (const json* ops = fields.object("ops"))
    for (const auto& [op, implementation] : ops->items()) {
      if (!implementation.is_string()) {
        fields.fail("ops", fmt::format("must give \"{}\" the name of an implementation", probes::printable(op, 40)));
        break;
      }
      profile.ops[op] = implementation.get<std::string>();
    }
  if (auto read = fields.finish_strict(); !read)
    return read.error();
  return profile;
}

} // namespace

std::vector<std::string> profile_names() { return data_names("profiles"); }

Result<Profile> load_profile(const std::string& name) { return load(name, {}); }

} // namespace h3diff::cases
