// JSON as this folder reads it: duplicate keys are errors, and every error names the source and the key.
#pragma once
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace h3diff::cases {

// bad_input for malformed text, invalid UTF-8 or a key that an object has twice.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& source);

// Takes known keys out of one object; absent keys leave their target alone. The first failure is kept and
// everything after it does nothing, so that a reader is one straight list of keys.
class Fields {
public:
  Fields(const nlohmann::json& value, std::string source, std::string where = "");
  void integer(const char* key, std::int64_t& out, std::int64_t low, std::int64_t high);
  void integer(const char* key, int& out, int low, int high);
  void unsigned_integer(const char* key, std::uint64_t& out);
  void number(const char* key, double& out, double above); // finite and > above
  void number(const char* key, float& out, double above);  // rounded to float32
  void text(const char* key, std::string& out);
  void integers(const char* key, std::vector<std::int64_t>& out, std::int64_t low, std::int64_t high);
  void texts(const char* key, std::vector<std::string>& out);
  // The object under `key`, or nullptr where it is absent or something failed before.
  const nlohmann::json* object(const char* key);
  bool has(const char* key) const;
  void ignore(const char* key) { known_.insert(key); }
  void fail(const char* key, const std::string& fact);
  void merge(const Result<void>& nested); // takes over a nested reader's failure
  Result<void> finish_strict();           // also fails on a key that nobody asked for
  Result<void> finish() const;

private:
  const nlohmann::json* find(const char* key);
  const nlohmann::json* value_;
  std::string source_, where_;
  std::set<std::string, std::less<>> known_;
  Error error_;
  bool failed_ = false;
};

} // namespace h3diff::cases
