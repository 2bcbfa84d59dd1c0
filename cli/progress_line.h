// Shows on standard error how far a long run is: a bar on a terminal, a line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>

namespace moeway::cli {

class ProgressLine {
 public:
  ProgressLine(int64_t total_rounds, bool quiet);
  ~ProgressLine();  // Takes the bar away.
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(int64_t rounds_done);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t total_;
  bool quiet_, terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), next_;
};

}  // namespace moeway::cli
