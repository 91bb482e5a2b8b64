/* Prints the bits of measurements of tensors of every dtype; test_c_header_compilers.cmake compares what different
 * compilers and flags make of it. */
#define H3DIFF_PROBE_IMPLEMENTATION
#include "h3diff/h3diff_probe.h"
#include <inttypes.h>

static unsigned char data[600 * 70 * 8];
static h3diff_workspace workspace;
static h3diff_measurement m;

static void print_double(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7FFFFFFFFFFFFFFFu) > 0x7FF0000000000000u) bits = 0x7FF8000000000000u;
  printf(" %016" PRIx64, bits);
}

static int measure(int dtype, int64_t rows, int64_t cols) {
  h3diff_tensor t = h3diff_matrix("p", 0, dtype, rows, cols, data);
  int i;
  if (h3diff_measure(&t, 0, 64, &workspace, &m) != H3DIFF_OK) return 1;
  printf("%d %" PRId64 " %" PRId64 ": %016" PRIx64 "%016" PRIx64, dtype, rows, cols, m.digest[0], m.digest[1]);
  printf(" %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, m.zeros, m.nan, m.inf, m.subnormal);
  print_double(m.mean);
  print_double(m.std);
  print_double(m.l2);
  print_double(m.min);
  print_double(m.max);
  print_double(m.absmax);
  printf(" %" PRId64 " %" PRId64, m.absmax_row, m.absmax_col);
  for (i = 0; i < 16; ++i) print_double((double)m.row_bands[i]);
  for (i = 0; i < 16; ++i) print_double((double)m.col_groups[i]);
  for (i = 0; i < m.sketch_k; ++i) print_double(m.sketch[i]);
  printf("\n");
  return 0;
}

int main(void) {
  uint32_t seed = 1;
  size_t i;
  int dtype, failed = 0;
  for (i = 0; i < sizeof data; ++i) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (unsigned char)(seed >> 24);
  }
  for (dtype = H3DIFF_FLOAT64; dtype <= H3DIFF_BOOL; ++dtype) { /* any bits: NaN, infinities and subnormals too */
    failed |= measure(dtype, 600, 70);
    failed |= measure(dtype, 3, 5);
  }
  for (i = 0; i < 300 * 70; ++i) { /* finite, with a mean that is large against the deviation */
    double wide;
    seed = seed * 1664525u + 1013904223u;
    wide = 1000.0 + (double)seed / 4294967296.0;
    memcpy(data + 8 * i, &wide, 8);
  }
  failed |= measure(H3DIFF_FLOAT64, 300, 70);
  for (i = 0; i < 600 * 70; ++i) {
    float narrow;
    seed = seed * 1664525u + 1013904223u;
    narrow = (float)((double)seed / 4294967296.0 - 0.5);
    memcpy(data + 4 * i, &narrow, 4);
  }
  failed |= measure(H3DIFF_FLOAT32, 600, 70);
  failed |= measure(H3DIFF_FLOAT32, 41, 513);
  return failed;
}
