#include "cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/terminal.h"

namespace moeway::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirst = 1s;  // Shorter runs need no progress.
constexpr auto kBetweenBars = 100ms;
constexpr auto kBetweenLines = 5s;
constexpr int kBarColumns = 40;

}  // namespace

ProgressLine::ProgressLine(int64_t total_steps, bool quiet, const char* command, const char* step)
    : total_(total_steps),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      command_(command),
      step_(step),
      next_(start_ + kFirst) {
  if (!terminal_) next_ = start_ + kBetweenLines;
}

ProgressLine::~ProgressLine() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressLine::show(int64_t steps_done) {
  const Clock::time_point now = Clock::now();
  if (quiet_ || now < next_) return;
  const double done = static_cast<double>(steps_done) / static_cast<double>(total_);
  const double elapsed_us = std::chrono::duration<double, std::micro>(now - start_).count();
  const std::string left = steps_done == 0 ? "" : ", " + duration_text(elapsed_us / done - elapsed_us) + " left";
  const std::string counts = fmt::format("{} {} of {}{}", step_, with_commas(steps_done), with_commas(total_), left);
  if (terminal_) {
    fmt::print(stderr, "\r\033[K[{}] {}", bar(done, kBarColumns, use_unicode()), counts);
    std::fflush(stderr);
    drawn_ = true;
    next_ = now + kBetweenBars;
  } else {
    fmt::print(stderr, "moeway {}: {}\n", command_, counts);
    next_ = now + kBetweenLines;
  }
}

}  // namespace moeway::cli
