/* The implementation as C99, for the programs that test it. */
#define H3DIFF_PROBE_IMPLEMENTATION
#include "h3diff/h3diff_probe.h"
