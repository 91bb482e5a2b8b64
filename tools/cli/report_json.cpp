#include "program.hpp"
#include "report.hpp"
#include <nlohmann/json.hpp>

namespace h3diff::cli {

int write_comparison(const goldens::CompareResult& result, const std::string& path, int code) {
  return path.empty() ? code : write_json(goldens::to_json(result), path, code);
}

} // namespace h3diff::cli
