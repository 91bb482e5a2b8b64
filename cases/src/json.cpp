#include "json.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include <cmath>
#include <fmt/format.h>

namespace h3diff::cases {

using nlohmann::json;

Result<json> parse_json(std::string_view text, const std::string& source) {
  // The parser takes a NUL for the end of its input and would pass over what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    return bad_input(fmt::format("{}: not JSON at byte {}", source, nul + 1));
  std::vector<std::set<std::string>> open_objects;
  std::string duplicate;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start)
      open_objects.emplace_back();
    if (event == json::parse_event_t::object_end)
      open_objects.pop_back();
    if (event == json::parse_event_t::key && !open_objects.back().insert(parsed.get<std::string>()).second &&
        duplicate.empty())
      duplicate = parsed.get<std::string>();
    return true;
  };
  try {
    json value = json::parse(text.begin(), text.end(), watch);
    if (!duplicate.empty())
      return bad_input(fmt::format("{}: the JSON has the key \"{}\" twice", source, probes::printable(duplicate)));
    return value;
  } catch (const json::parse_error& failure) {
    return bad_input(fmt::format("{}: not JSON at byte {}", source, failure.byte));
  } catch (const json::exception&) { // a number out of range
    return bad_input(fmt::format("{}: the JSON holds a number out of range", source));
  }
}

Fields::Fields(const json& value, std::string source, std::string where)
    : value_(&value), source_(std::move(source)), where_(std::move(where)) {
  if (!value.is_object()) {
    failed_ = true;
    error_ = bad_input(fmt::format("{}: {} must be a JSON object", source_, where_.empty() ? "the content" : where_));
  }
}

bool Fields::has(const char* key) const { return value_->is_object() && value_->contains(key); }

const json* Fields::find(const char* key) {
  known_.insert(key);
  if (failed_)
    return nullptr;
  const auto found = value_->find(key);
  return found == value_->end() ? nullptr : &*found;
}

void Fields::fail(const char* key, const std::string& fact) {
  if (failed_)
    return;
  failed_ = true;
  error_ = bad_input(fmt::format("{}: {}{}{} {}", source_, where_, where_.empty() ? "" : ".", key, fact));
}

void Fields::integer(const char* key, std::int64_t& out, std::int64_t low, std::int64_t high) {
  const json* found = find(key);
  if (!found)
    return;
  const bool too_large = found->is_number_unsigned() && found->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  if (!found->is_number_integer() || too_large || found->get<std::int64_t>() < low || found->get<std::int64_t>() > high)
    return fail(key, fmt::format("must be an integer from {} to {}, not {}", low, high,
                                 probes::printable(found->dump(-1, ' ', true), 40)));
  out = found->get<std::int64_t>();
}

void Fields::integer(const char* key, int& out, int low, int high) {
  std::int64_t wide = out;
  integer(key, wide, std::int64_t{low}, std::int64_t{high});
  out = static_cast<int>(wide);
}

void Fields::unsigned_integer(const char* key, std::uint64_t& out) {
  const json* found = find(key);
  if (!found)
    return;
  if (!found->is_number_unsigned())
    return fail(key, "must be an integer from 0 to 2^64 - 1");
  out = found->get<std::uint64_t>();
}

void Fields::number(const char* key, double& out, double above) {
  const json* found = find(key);
  if (!found)
    return;
  if (!found->is_number() || !(found->get<double>() > above) || !std::isfinite(found->get<double>()))
    return fail(key, fmt::format("must be a number above {}", above));
  out = found->get<double>();
}

void Fields::number(const char* key, float& out, double above) {
  double wide = static_cast<double>(out);
  number(key, wide, above);
  out = static_cast<float>(wide);
}

void Fields::text(const char* key, std::string& out) {
  const json* found = find(key);
  if (!found)
    return;
  if (!found->is_string())
    return fail(key, "must be a string");
  out = found->get<std::string>();
}

void Fields::integers(const char* key, std::vector<std::int64_t>& out, std::int64_t low, std::int64_t high) {
  const json* found = find(key);
  if (!found)
    return;
  if (!found->is_array())
    return fail(key, "must be a list of integers");
  out.clear();
  for (const json& item : *found) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < low || item.get<std::int64_t>() > high)
      return fail(key, fmt::format("must hold integers from {} to {}", low, high));
    out.push_back(item.get<std::int64_t>());
  }
}

void Fields::texts(const char* key, std::vector<std::string>& out) {
  const json* found = find(key);
  if (!found)
    return;
  if (!found->is_array())
    return fail(key, "must be a list of strings");
  out.clear();
  for (const json& item : *found) {
    if (!item.is_string())
      return fail(key, "must be a list of strings");
    out.push_back(item.get<std::string>());
  }
}

const json* Fields::object(const char* key) {
  const json* found = find(key);
  if (found && !found->is_object())
    fail(key, "must be a JSON object");
  return failed_ ? nullptr : found;
}

void Fields::merge(const Result<void>& nested) {
  if (failed_ || nested)
    return;
  failed_ = true;
  error_ = nested.error();
}

Result<void> Fields::finish() const {
  if (failed_)
    return error_;
  return {};
}

Result<void> Fields::finish_strict() {
  if (!failed_)
    for (const auto& [key, unused] : value_->items())
      if (!known_.contains(key)) {
        fail(probes::printable(key).c_str(), "is not a known key");
        break;
      }
  return finish();
}

} // namespace h3diff::cases
