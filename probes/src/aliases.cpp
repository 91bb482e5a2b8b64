#include "h3diff/probes/aliases.hpp"

#include "builtin_aliases.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace h3diff::probes {
namespace {

constexpr std::string_view number = "{n}";

std::size_t count_numbers(std::string_view text) {
  std::size_t count = 0;
  for (auto at = text.find(number); at != std::string_view::npos; at = text.find(number, at + number.size()))
    ++count;
  return count;
}

// The digits that {n} stands for, an empty text where the pattern has no {n}, nullopt for no match.
std::optional<std::string_view> match(std::string_view pattern, std::string_view name) {
  const auto at = pattern.find(number);
  if (at == std::string_view::npos)
    return pattern == name ? std::optional(std::string_view{}) : std::nullopt;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + number.size());
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  const std::string_view digits = name.substr(before.size(), name.size() - before.size() - after.size());
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  if (digits.size() > 1 && digits.front() == '0')
    return std::nullopt;
  return digits;
}

} // namespace

Result<AliasTable> AliasTable::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return bad_input(fmt::format("{} cannot be read", path));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return parse(text, path);
}

Result<AliasTable> AliasTable::parse(std::string_view json, const std::string& source) {
  const auto wrong = [&](const std::string& fact) { return bad_input(fmt::format("{}: {}", source, fact)); };
  const auto document = nlohmann::json::parse(json, nullptr, false);
  if (document.is_discarded())
    return wrong("not JSON");
  if (!document.is_object() || !document.contains("port") || !document["port"].is_string())
    return wrong("an alias table needs a string 'port'");
  if (!document.contains("names") || !document["names"].is_array())
    return wrong("an alias table needs an array 'names'");

  AliasTable table;
  table.port_ = document["port"].get<std::string>();
  for (const auto& entry : document["names"]) {
    const auto at = table.names_.size();
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("probe") ||
        !entry["probe"].is_string())
      return wrong(fmt::format("names[{}] needs the strings 'name' and 'probe'", at));
    auto name = entry["name"].get<std::string>(), probe = entry["probe"].get<std::string>();
    if (name.empty() || probe.empty())
      return wrong(fmt::format("names[{}] has an empty 'name' or 'probe'", at));
    if (count_numbers(name) > 1 || count_numbers(probe) != count_numbers(name))
      return wrong(fmt::format("names[{}] ('{}') must have {{n}} at most once, and as often in 'probe'", at, name));
    for (const auto& known : table.names_)
      if (known.first == name)
        return wrong(fmt::format("names[{}] repeats '{}'", at, name));
    table.names_.emplace_back(std::move(name), std::move(probe));
  }
  return table;
}

std::optional<std::string> AliasTable::canonical(std::string_view foreign) const {
  for (const auto& [pattern, probe] : names_) {
    const auto digits = match(pattern, foreign);
    if (!digits)
      continue;
    std::string result = probe;
    if (const auto at = result.find(number); at != std::string::npos)
      result.replace(at, number.size(), *digits);
    return result;
  }
  return std::nullopt;
}

const std::vector<AliasTable>& builtin_aliases() {
  static const std::vector<AliasTable> tables = [] {
    std::vector<AliasTable> parsed;
    for (const auto& [source, json] : builtin_alias_files()) {
      auto table = AliasTable::parse(json, std::string(source));
      if (!table)
        throw std::logic_error(table.error().message); // a file of ours; tests/probes parses each
      parsed.push_back(*std::move(table));
    }
    return parsed;
  }();
  return tables;
}

} // namespace h3diff::probes
