#include "cuda_driver.hpp"

#include <array>
#include <dlfcn.h>

namespace h3diff::harness {
namespace {

// Attribute numbers of cuDeviceGetAttribute, from the driver's stable interface.
constexpr int capability_major = 75, capability_minor = 76;

template <class Function> Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

} // namespace

CudaDriver cuda_driver() {
  CudaDriver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return driver;
  const auto init = symbol<int (*)(unsigned)>(library, "cuInit");
  const auto version = symbol<int (*)(int*)>(library, "cuDriverGetVersion");
  const auto count = symbol<int (*)(int*)>(library, "cuDeviceGetCount");
  const auto get = symbol<int (*)(int*, int)>(library, "cuDeviceGet");
  const auto name = symbol<int (*)(char*, int, int)>(library, "cuDeviceGetName");
  const auto attribute = symbol<int (*)(int*, int, int)>(library, "cuDeviceGetAttribute");
  int number = 0, devices = 0;
  if (!init || !version || !count || !get || !name || !attribute || init(0) != 0 || version(&number) != 0 ||
      count(&devices) != 0)
    return driver;
  driver.version = std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  for (int i = 0; i < devices; ++i) {
    int device = 0, major = 0, minor = 0;
    std::array<char, 128> text{};
    if (get(&device, i) != 0 || name(text.data(), static_cast<int>(text.size()) - 1, device) != 0 ||
        attribute(&major, capability_major, device) != 0 || attribute(&minor, capability_minor, device) != 0)
      break;
    driver.devices.push_back({text.data(), major * 10 + minor});
  }
  return driver; // the library stays loaded: torch uses it too
}

} // namespace h3diff::harness
