// Work on a stranger's file, done in a child process. libhdf5 was not made for hostile input: some damaged files
// make it crash, loop or ask for absurd amounts of memory, and no check from outside can tell beforehand. The child
// may die of that; the caller gets a sentence.
#pragma once
#include "h3diff/probes/result.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace h3diff::probes {

struct GuardLimits {
  int cpu_seconds = 120;
  std::uint64_t memory_bytes = std::uint64_t{1} << 30; // beyond what the process has mapped already
};

// Forks; the child runs `work` with a descriptor of an anonymous file in memory, then ends without running any
// destructor of the parent's objects. Returns that descriptor (the caller closes it) with its offset at the end.
// Failure: bad_input naming `path` if the child died or ran into a limit, environment if there can be no child.
Result<int> run_guarded(const std::string& path, const GuardLimits&, const std::function<void(int out)>& work);

} // namespace h3diff::probes
