// Threads, determinism and devices of torch, and what a dump records of them.
#pragma once
#include "h3diff/probes/dump.hpp"
#include "h3diff/probes/result.hpp"
#include <c10/core/Device.h>
#include <string>

namespace h3diff::harness {

struct Device {
  at::Device torch = at::kCPU;
  std::string name = "cpu"; // the accelerator's name
  int sm = 0;               // compute capability times 10; 0 on the CPU
  std::string driver;       // CUDA version that the driver supports; "" on the CPU
};
// "cpu", "cuda" or "cuda:N". usage error: another word; environment error: no such device, naming it.
Result<Device> open_device(const std::string& text);

// Sets torch's thread count and deterministic mode, TF32 off, and cuBLAS's workspace unless the user set one.
void set_determinism(int threads);

// Facts `device`, `threads`, `isa`, `mkl_cbwr`, `deterministic`, `torch`, ... of docs/dump-format.md section 3.
probes::RunFacts environment_facts(const Device&);

} // namespace h3diff::harness
