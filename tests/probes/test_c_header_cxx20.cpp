// The implementation as C++20: compiled only. Declarations and implementation may come in separate includes.
#include "h3diff/h3diff_probe.h"
#define H3DIFF_PROBE_IMPLEMENTATION
#include "h3diff/h3diff_probe.h"
