// A child process that runs one or more ranks of a job and sends their reports back through a pipe.
#pragma once

#include <moeway/status.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "cli/rank_report.h"

namespace moeway::cli {

class RankProcess {
 public:
  // Runs in the child; one report per rank.
  using Work = std::function<std::vector<RankReport>()>;

  // Forks. `started`: the processes before it, whose descriptors the child closes.
  static Result<RankProcess> start(std::vector<int> ranks, const Work& work, const std::vector<RankProcess>& started);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();  // Kills and reaps it, if need be.

  const std::vector<int>& ranks() const { return ranks_; }
  // Readable when there is news; -1 when there will be no more.
  int descriptor() const { return descriptor_; }
  // Takes in what has come, and whether the process has ended. Never waits.
  void update();
  bool ended() const { return reaped_ && descriptor_ < 0; }
  // It has ended without reports, or a report tells of a failure.
  bool failed() const;
  int first_failed_rank() const;
  void kill();
  bool was_killed_here() const { return killed_here_; }
  bool end_was_clean() const;
  // "was killed by signal 9 (Killed)"
  std::string how_it_ended() const;
  // Empty if they did not come whole. Once.
  std::vector<RankReport> take_reports() { return std::move(reports_); }

 private:
  RankProcess(std::vector<int> ranks, pid_t pid, int descriptor)
      : ranks_(std::move(ranks)), pid_(pid), descriptor_(descriptor) {}
  void read_all();
  void parse_reports();

  std::vector<int> ranks_;
  pid_t pid_;
  int descriptor_;
  std::string text_;  // What came through the pipe so far.
  std::vector<RankReport> reports_;
  bool reaped_ = false, killed_here_ = false;
  int wait_status_ = 0;
};

}  // namespace moeway::cli
