#pragma once

namespace h3diff::cli {

inline constexpr const char* version = H3DIFF_VERSION; // the project's, from CMake

} // namespace h3diff::cli
