// The CUDA driver's facts about devices, asked through libcuda itself: no CUDA header or library at build time.
#pragma once
#include <string>
#include <vector>

namespace h3diff::harness {

struct CudaDevice {
  std::string name;
  int sm = 0; // compute capability times 10
};
struct CudaDriver {
  std::string version; // "13.0"; "" without a driver
  std::vector<CudaDevice> devices;
};
CudaDriver cuda_driver();

} // namespace h3diff::harness
