#include "bench_report.hpp"
#include "program.hpp"
#include <algorithm>
#include <limits>

namespace h3diff::cli {

CLI::App* add_bench(CLI::App& app) {
  CLI::App* verb = add_verb(app, "bench", "Speed beside other tools, measured in one run",
                            "h3diff bench compare --size 1GiB", {0, 5});
  verb->require_subcommand(1);
  return verb;
}

double median(std::vector<double> values) {
  if (values.empty())
    return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

} // namespace h3diff::cli
