// `bench`: rounds measured side by side in one run, medians and ratios.
#pragma once
#include <CLI/CLI.hpp>
#include <vector>

namespace h3diff::cli {

CLI::App* add_bench(CLI::App&); // `bench`, to which each program adds what it can measure

double median(std::vector<double> values); // NaN if empty

} // namespace h3diff::cli
