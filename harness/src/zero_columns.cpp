#include "zero_columns.hpp"

#include <charconv>
#include <fmt/format.h>

namespace h3diff::harness {
namespace {

bool parse_number(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

} // namespace

Result<ZeroColumns> ZeroColumns::parse(std::string_view text) {
  ZeroColumns zero;
  if (text.empty())
    return zero;
  const std::size_t colon = text.rfind(':');
  const std::size_t dash = text.rfind('-');
  if (colon == 0 || colon == std::string_view::npos || dash == std::string_view::npos || dash < colon ||
      !parse_number(text.substr(colon + 1, dash - colon - 1), zero.begin) ||
      !parse_number(text.substr(dash + 1), zero.end) || zero.begin >= zero.end)
    return usage_error(fmt::format("'{}' is not PATTERN:BEGIN-END with BEGIN below END", text));
  zero.pattern = text.substr(0, colon);
  return zero;
}

bool ZeroColumns::matches(std::string_view probe) const {
  constexpr std::string_view prefix = "weights.";
  if (pattern.empty() || probe.substr(0, prefix.size()) != prefix || probe.ends_with(".bias"))
    return false;
  const std::string_view module = probe.substr(prefix.size());
  return probes::glob_match(pattern, module) || probes::glob_match("*." + pattern, module);
}

Result<void> ZeroColumns::check(const probes::Graph& graph) const {
  if (pattern.empty())
    return {};
  bool any = false;
  for (const probes::ProbeInfo& info : graph.probes()) {
    if (!info.weight || info.rows == 1 || !matches(info.name))
      continue;
    any = true;
    if (end > info.cols)
      return usage_error(fmt::format("{} has {} columns, so columns {} to {} cannot be set to 0", info.name, info.cols,
                                     begin, end - 1));
  }
  if (!any)
    return usage_error(fmt::format("no weight matrix matches '{}'", pattern));
  return {};
}

} // namespace h3diff::harness
