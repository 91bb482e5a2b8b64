// Runs a bundle or a case on a backend with probes attached.
#pragma once
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace h3diff::harness {

struct RunOptions {
  std::string source;  // a bundle's folder, or the name of a case
  std::string profile; // name of a numerics profile
  std::string layout;  // "", "raw", "comfy", "diffusers"
  std::string device = "cpu";
  int threads = 1;
  int steps = 0;                     // 0: as the case says
  std::optional<std::uint64_t> seed; // of a case given by name
  std::string capture;               // "": default
  std::string zero_columns;          // "PATTERN:BEGIN-END": weight columns set to 0 after loading
  std::string output;                // dump; "": no probes, the forward alone
  bool overwrite = false;
  std::function<void(int step, int steps, const std::string& probe)> progress;
};

struct RunSummary {
  int steps = 0;
  std::int64_t probes = 0; // index rows written
  std::int64_t over_budget = 0;
  // Bytes of the final predictions, for tests that compare runs with and without probes.
  std::vector<float> video, audio;
};

// Stops at the next step boundary when `*interrupted` becomes true (a signal handler sets it).
Result<RunSummary> run(const RunOptions&, const volatile bool* interrupted = nullptr);

struct TorchFacts {
  std::string version, cuda, isa, mkl_cbwr;
  bool cuda_available = false;
  std::vector<std::string> devices;
};
TorchFacts torch_facts();

} // namespace h3diff::harness
