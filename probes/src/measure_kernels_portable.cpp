// The copy for any processor: 16-byte registers, which x86-64 and aarch64 both have.
#include "measure_kernels.hpp"

#define H3DIFF_VECTOR_BYTES 16
#define H3DIFF_INLINE __attribute__((always_inline)) inline
namespace h3diff::probes::kernels::portable {
#include "measure_kernels.inc"
} // namespace h3diff::probes::kernels::portable
