// What `h3diff inspect` says of each kind of file, as text and as a record.
#pragma once
#include "h3diff/probes/result.hpp"
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace h3diff::cli {

struct InspectArguments {
  std::string path, probe, layout, json;
  std::optional<std::int32_t> step;
};

struct Inspection {
  std::string text;
  nlohmann::json record;
};

Result<Inspection> inspect_dump(const InspectArguments&);       // inspect_dump.cpp
Result<Inspection> inspect_checkpoint(const InspectArguments&); // inspect_checkpoint.cpp
Result<Inspection> inspect_bundle(const InspectArguments&);     // inspect_checkpoint.cpp

} // namespace h3diff::cli
