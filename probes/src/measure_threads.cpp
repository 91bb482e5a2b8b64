#include "measure_threads.hpp"
#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace h3diff::probes {

void for_each_task(std::int64_t tasks, int threads, const std::function<void(int, std::int64_t)>& body) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&](int worker) {
    const DefaultRounding rounding;
    for (std::int64_t task = next++; task < tasks; task = next++)
      body(worker, task);
  };
  const auto wanted = static_cast<int>(std::min<std::int64_t>(threads, tasks));
  std::vector<std::jthread> others;
  try {
    for (int worker = 1; worker < wanted; ++worker)
      others.emplace_back(work, worker);
  } catch (const std::system_error&) { // no more threads to be had
  }
  work(0);
}

} // namespace h3diff::probes
