#include "progress.hpp"
#include "terminal.hpp"
#include <fmt/format.h>
#include <cstdio>
#include <unistd.h>

namespace h3diff::cli {

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_(start_) {}

Progress::~Progress() {
  if (shown_ && terminal_)
    std::fputs("\r\x1b[K", stderr);
}

void Progress::update(double fraction, std::string_view detail) {
  const auto now = Clock::now();
  const auto wait = shown_ && terminal_ ? std::chrono::milliseconds(100)
                    : terminal_         ? std::chrono::milliseconds(1000)
                                        : std::chrono::milliseconds(10000);
  if (now - last_ < wait)
    return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string line = fmt::format("{}: {:3.0f} %, {:.0f} s, {}", label_, 100 * fraction, seconds, detail);
  if (terminal_)
    fmt::print(stderr, "\r{}\x1b[K", shorten(line, 79));
  else
    fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

} // namespace h3diff::cli
