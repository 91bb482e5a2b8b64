#include "measure_kernels.hpp"
#include <atomic>

namespace h3diff::probes::kernels {
namespace portable {
extern const Table kernel_table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Table kernel_table;
}
#endif

namespace {

Isa best() { return available(Isa::avx2) ? Isa::avx2 : Isa::portable; }

std::atomic<const Table*> chosen{nullptr};

} // namespace

bool available(Isa isa) {
  if (isa == Isa::portable)
    return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

const Table& table(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx2 && available(Isa::avx2))
    return avx2::kernel_table;
#endif
  return portable::kernel_table;
}

const Table& table() {
  const Table* now = chosen.load(std::memory_order_acquire);
  if (now == nullptr) {
    now = &table(best());
    chosen.store(now, std::memory_order_release);
  }
  return *now;
}

void choose_isa(Isa isa) { chosen.store(&table(isa), std::memory_order_release); }

} // namespace h3diff::probes::kernels
