// Threads and floating-point environment of one measurement.
#pragma once
#include <cfenv>
#include <cstdint>
#include <functional>

namespace h3diff::probes {

// Calls body(worker, task) for every task in [0, tasks), from up to `threads` threads; worker < threads. Which
// worker gets which task is left to chance: results must be kept per task. If the system gives fewer threads,
// fewer do the work.
void for_each_task(std::int64_t tasks, int threads, const std::function<void(int worker, std::int64_t task)>& body);

// Round to nearest, subnormals kept, whatever the caller has set: else the same tensor could measure differently.
class DefaultRounding {
public:
  DefaultRounding() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() { std::fesetenv(&saved_); }
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

private:
  std::fenv_t saved_{};
};

} // namespace h3diff::probes
