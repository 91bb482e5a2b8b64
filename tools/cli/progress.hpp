// Progress on standard error, only once a job has lasted a second: one line rewritten in place on a terminal, a line
// every ten seconds elsewhere.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

namespace h3diff::cli {

class Progress {
public:
  explicit Progress(std::string label);
  ~Progress(); // ends the line
  void update(double fraction, std::string_view detail);

private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_, last_;
};

} // namespace h3diff::cli
