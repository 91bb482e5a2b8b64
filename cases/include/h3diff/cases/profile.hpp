// A numerics profile: which implementation of each op runs, and in what dtype. JSON files in
// cases/data/profiles/NAME.json; docs/cases.md describes the keys. A profile may inherit another and
// override op by op.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include "h3diff/probes/result.hpp"
#include <map>
#include <string>
#include <vector>

namespace h3diff::cases {

struct Profile {
  std::string name, description, source;
  probes::DType compute_dtype = probes::DType::float32;
  probes::DType island_dtype = probes::DType::float32; // patch projections, time embedder, output heads
  std::map<std::string, std::string> ops;              // op -> implementation
};

std::vector<std::string> profile_names();
// usage error listing the known names; bad_input for malformed JSON, unknown keys or dtypes, a cycle.
Result<Profile> load_profile(const std::string& name);

// Where cases/data is: $H3DIFF_DATA, else beside the installed program, else the source tree of this build.
std::string data_folder();

} // namespace h3diff::cases
