#include "environment.hpp"

#include "cuda_driver.hpp"
#include "h3diff/harness/run.hpp"
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

namespace h3diff::harness {
namespace {

constexpr const char* cublas_workspace = "CUBLAS_WORKSPACE_CONFIG";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// CUDA version that torch was built with; "" without.
std::string torch_cuda() {
  if (!at::hasCUDA())
    return "";
  const long version = at::detail::getCUDAHooks().versionCUDART();
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

} // namespace

Result<Device> open_device(const std::string& text) {
  if (text == "cpu")
    return Device{};
  int index = 0;
  if (text != "cuda") {
    constexpr std::string_view prefix = "cuda:";
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + std::min(prefix.size(), text.size()), end, index);
    if (!text.starts_with(prefix) || error != std::errc() || rest != end || index < 0 || index > 127)
      return usage_error(fmt::format("device '{}' is neither cpu nor cuda:N", text));
  }
  if (!at::hasCUDA())
    return environment_error(fmt::format("there is no device {}: this libtorch sees no CUDA", text));
  const CudaDriver driver = cuda_driver();
  const int devices = at::detail::getCUDAHooks().getNumGPUs();
  if (index >= devices || index >= static_cast<int>(driver.devices.size()))
    return environment_error(fmt::format("there is no device {}: torch sees {} CUDA devices", text, devices));
  Device device;
  device.torch = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
  device.name = driver.devices[static_cast<std::size_t>(index)].name;
  device.sm = driver.devices[static_cast<std::size_t>(index)].sm;
  device.driver = driver.version;
  return device;
}

void set_determinism(int threads) {
  // Read when CUDA starts; without it cuBLAS may take a different split on every run.
  setenv(cublas_workspace, ":4096:8", 0);
  at::set_num_threads(threads);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, false);
  context.setDeterministicFillUninitializedMemory(false); // costs time, and changes no value that anything reads
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
}

probes::RunFacts environment_facts(const Device& device) {
  probes::RunFacts facts;
  facts["device"] = device.name;
  facts["threads"] = std::int64_t{at::get_num_threads()};
  facts["isa"] = at::get_cpu_capability();
  facts["mkl_cbwr"] = environment("MKL_CBWR");
  facts["deterministic"] = std::int64_t{at::globalContext().deterministicAlgorithms()};
  facts["torch"] = std::string(TORCH_VERSION);
  if (device.torch.is_cuda()) {
    facts["cuda"] = torch_cuda();
    facts["driver"] = device.driver;
    facts["sm"] = std::to_string(device.sm);
    facts["cublas_workspace"] = environment(cublas_workspace);
    facts["tf32"] = std::int64_t{at::globalContext().allowTF32CuBLAS()};
  }
  return facts;
}

TorchFacts torch_facts() {
  TorchFacts facts;
  facts.version = TORCH_VERSION;
  facts.cuda = torch_cuda();
  facts.isa = at::get_cpu_capability();
  facts.mkl_cbwr = environment("MKL_CBWR");
  facts.cuda_available = at::hasCUDA() && at::detail::getCUDAHooks().getNumGPUs() > 0;
  for (const CudaDevice& device : cuda_driver().devices)
    facts.devices.push_back(fmt::format("{} (sm_{})", device.name, device.sm));
  return facts;
}

} // namespace h3diff::harness
