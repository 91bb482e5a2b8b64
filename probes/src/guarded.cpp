#include "guarded.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>

namespace h3diff::probes {
namespace {

constexpr int out_of_memory = 2, threw = 3;

std::uint64_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void lower(int resource, rlim_t soft) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0)
    return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? soft : std::min(soft, limit.rlim_max);
  setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

[[noreturn]] void child(const GuardLimits& limits, const std::function<void(int)>& work, int out) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU, SIGTERM, SIGINT})
    std::signal(signal, SIG_DFL);
  lower(RLIMIT_CORE, 0);
  lower(RLIMIT_CPU, static_cast<rlim_t>(limits.cpu_seconds));
  lower(RLIMIT_AS, static_cast<rlim_t>(mapped_bytes() + limits.memory_bytes));
  // What the C library or a sanitizer says about a crash is no news to the user.
  if (const int null = open("/dev/null", O_WRONLY | O_CLOEXEC); null >= 0)
    dup2(null, STDERR_FILENO);
  try {
    work(out);
  } catch (const std::bad_alloc&) {
    _exit(out_of_memory);
  } catch (...) {
    _exit(threw);
  }
  _exit(0);
}

std::string how_it_ended(int status, const GuardLimits& limits) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
    return fmt::format("reading its structure takes more than {} s of computing", limits.cpu_seconds);
  if (WIFSIGNALED(status))
    return fmt::format("the HDF5 library crashes on it ({})", strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == out_of_memory)
    return "reading its structure takes more memory than a file of its size warrants";
  return "the HDF5 library cannot make sense of it";
}

} // namespace

Result<int> run_guarded(const std::string& path, const GuardLimits& limits, const std::function<void(int out)>& work) {
  const int out = memfd_create("h3diff-dump", MFD_CLOEXEC);
  if (out < 0)
    return environment_error(fmt::format("{}: no memory to read it: {}", path, std::strerror(errno)));
  const pid_t pid = fork();
  if (pid == 0)
    child(limits, work, out);
  if (pid < 0) {
    const int error = errno;
    close(out);
    return environment_error(fmt::format("{}: no process to read it: {}", path, std::strerror(error)));
  }
  int status = 0;
  pid_t ended = 0;
  do
    ended = waitpid(pid, &status, 0);
  while (ended < 0 && errno == EINTR);
  // A caller that ignores SIGCHLD leaves no status to read; what the child wrote says then whether it got through.
  if (ended == pid && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
    close(out);
    return bad_input(fmt::format("{} is damaged: {}", path, how_it_ended(status, limits)));
  }
  return out;
}

} // namespace h3diff::probes
