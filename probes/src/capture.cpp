#include "h3diff/probes/capture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace h3diff::probes {
namespace {

constexpr std::array<std::string_view, 5> level_names = {"off", "digest", "stats", "rows", "full"};

std::optional<Level> parse_level(std::string_view text) {
  for (std::size_t i = 0; i < level_names.size(); ++i)
    if (level_names[i] == text)
      return static_cast<Level>(i);
  return std::nullopt;
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  std::int64_t unit = 1;
  for (const auto& [suffix, shift] : {std::pair{"KiB", 10}, std::pair{"MiB", 20}, std::pair{"GiB", 30}})
    if (text.ends_with(suffix)) {
      unit = std::int64_t{1} << shift;
      text.remove_suffix(3);
      break;
    }
  const auto value = parse_count(text);
  if (!value || *value > std::numeric_limits<std::int64_t>::max() / unit)
    return std::nullopt;
  return *value * unit;
}

Error wrong_item(std::string_view item, std::string_view why) {
  return usage_error(fmt::format("capture item '{}' {}", item, why));
}

Result<void> apply(CaptureSpec& spec, std::string_view item) {
  if (item.empty())
    return wrong_item(item, "is empty");
  if (const auto level = parse_level(item)) {
    spec.rules.emplace_back("*", *level);
    return {};
  }
  const auto equals = item.rfind('=');
  if (equals == std::string_view::npos)
    return wrong_item(item, "is neither a level (off, digest, stats, rows, full) nor PATTERN=LEVEL");
  const std::string_view key = trim(item.substr(0, equals)), value = trim(item.substr(equals + 1));
  if (key.empty())
    return wrong_item(item, "has nothing before its '='");
  if (key == "budget") {
    const auto bytes = parse_bytes(value);
    if (!bytes)
      return wrong_item(item, "needs a number of bytes, such as 500MiB or 4GiB");
    spec.budget_bytes = *bytes;
  } else if (key == "rows") {
    const auto rows = parse_count(value);
    if (!rows || *rows == 0)
      return wrong_item(item, "needs a number of rows of at least 1");
    spec.sample_rows = *rows;
  } else if (key == "sketch") {
    const auto k = parse_count(value);
    if (value != "auto" && !(k && (*k == 64 || *k == 128 || *k == 256)))
      return wrong_item(item, "needs 64, 128, 256 or auto");
    spec.sketch_k = k ? static_cast<int>(*k) : 0;
  } else {
    const auto level = parse_level(value);
    if (!level)
      return wrong_item(item, "has no level after its '=' (off, digest, stats, rows, full)");
    spec.rules.emplace_back(std::string(key), *level);
  }
  return {};
}

} // namespace

std::string_view name(Level level) { return level_names[static_cast<std::size_t>(level)]; }

Result<CaptureSpec> CaptureSpec::parse(std::string_view text) {
  CaptureSpec spec;
  spec.text = std::string(text);
  for (std::size_t begin = 0;;) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    if (auto ok = apply(spec, trim(text.substr(begin, comma - begin))); !ok)
      return ok.error();
    if (comma == text.size())
      return spec;
    begin = comma + 1;
  }
}

Result<void> CaptureSpec::check(const Graph& graph) const {
  for (const auto& [pattern, level] : rules) {
    const auto matches = [&](const ProbeInfo& info) { return glob_match(pattern, info.name); };
    if (std::none_of(graph.probes().begin(), graph.probes().end(), matches))
      return wrong_item(fmt::format("{}={}", pattern, name(level)), "matches no probe");
  }
  return {};
}

Level CaptureSpec::level(std::string_view probe) const {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule)
    if (glob_match(rule->first, probe))
      return rule->second;
  return Level::stats;
}

int CaptureSpec::sketch(int step, int steps) const {
  if (sketch_k != 0)
    return sketch_k;
  return step < 2 || step == steps - 1 ? 256 : 64;
}

} // namespace h3diff::probes
