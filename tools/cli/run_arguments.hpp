// The options of the verbs that h3diff-torch carries out. The front parses them too, so that --help and wrong usage
// need no libtorch; it then starts h3diff-torch with the same words.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

namespace h3diff::cli {

struct RunArguments {
  std::string source, profile, layout, device = "cpu", capture, zero_columns, output, json;
  int threads = 1;
  int steps = 0; // 0: as the case says
  std::optional<std::uint64_t> seed;
  bool overwrite = false;
};
CLI::App* add_run_options(CLI::App&, RunArguments&);

struct BenchProbeArguments {
  std::int64_t size = std::int64_t{256} << 20; // bytes of the float32 tensor
  int rounds = 7;
  int threads = 2;
  std::string json;
};
CLI::App* add_bench_probe_options(CLI::App& bench, BenchProbeArguments&);

} // namespace h3diff::cli
