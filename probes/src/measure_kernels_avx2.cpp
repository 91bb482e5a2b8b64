// The copy for processors with AVX2. Everything that others share is included before the target region.
#include "measure_kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#define H3DIFF_VECTOR_BYTES 32
#define H3DIFF_INLINE __attribute__((always_inline)) inline
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
namespace h3diff::probes::kernels::avx2 {
#include "measure_kernels.inc"
} // namespace h3diff::probes::kernels::avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
