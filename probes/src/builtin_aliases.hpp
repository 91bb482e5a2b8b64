// The JSON files of probes/aliases/, as probes/cmake/EmbedAliases.cmake turns them into a source file.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

namespace h3diff::probes {

// File name and content.
const std::vector<std::pair<std::string_view, std::string_view>>& builtin_alias_files();

} // namespace h3diff::probes
