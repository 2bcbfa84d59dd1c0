// Shows on standard error how far a long run is: a bar on a terminal, a line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>

namespace moeway::cli {

class ProgressLine {
 public:
  // `command` and `step` are words for the reader: "run" and "round".
  ProgressLine(int64_t total_steps, bool quiet, const char* command = "run", const char* step = "round");
  ~ProgressLine();  // Takes the bar away.
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(int64_t steps_done);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t total_;
  bool quiet_, terminal_;
  const char* command_;
  const char* step_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), next_;
};

}  // namespace moeway::cli
