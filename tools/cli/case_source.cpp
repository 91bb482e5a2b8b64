#include "case_source.hpp"
#include <fmt/format.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace h3diff::cli {

Result<cases::CaseSpec> read_case(const std::string& name_or_file) {
  const bool file =
      name_or_file.find('/') != std::string::npos || (name_or_file.size() > 5 && name_or_file.ends_with(".json"));
  if (!file)
    return cases::load_case(name_or_file);
  std::error_code error;
  if (std::filesystem::is_directory(name_or_file, error))
    return h3diff::bad_input(fmt::format("{}: is a folder, not a case file", name_or_file));
  std::ifstream stream(name_or_file, std::ios::binary);
  if (!stream)
    return h3diff::bad_input(fmt::format("{}: cannot be opened: {}", name_or_file, std::strerror(errno)));
  std::ostringstream text;
  text << stream.rdbuf();
  return cases::CaseSpec::parse(text.str(), name_or_file);
}

} // namespace h3diff::cli
