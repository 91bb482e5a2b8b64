#include "exit_codes.hpp"
#include <fmt/format.h>
#include <algorithm>

namespace h3diff::cli {

std::string exit_code_help(std::initializer_list<int> codes) {
  std::string text = "Exit codes:\n";
  for (const ExitMeaning& row : exit_meanings) {
    const bool every_verb =
        row.code == static_cast<int>(ExitCode::usage) || row.code == static_cast<int>(ExitCode::internal);
    if (every_verb || std::find(codes.begin(), codes.end(), row.code) != codes.end())
      text += fmt::format("  {:>3}  {}\n", row.code, row.meaning);
  }
  text.pop_back();
  return text;
}

} // namespace h3diff::cli
