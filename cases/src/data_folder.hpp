#pragma once
#include <string>
#include <vector>

namespace h3diff::cases {

// Names, without .json, of the files in a folder ("cases", "profiles") of the data folder; sorted.
std::vector<std::string> data_names(const std::string& kind);

} // namespace h3diff::cases
