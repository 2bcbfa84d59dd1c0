#include "cli/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/signals.h"

namespace moeway::cli {
namespace {

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;  // The parent is gone.
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

[[noreturn]] void run_child(const RankProcess::Work& work, int descriptor, pid_t parent) {
  leave_signals_to_parent();
  std::signal(SIGPIPE, SIG_IGN);
  // Ranks must not outlive the command, however that ends.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(1);
  const std::vector<RankReport> reports = work();
  write_all(descriptor, nlohmann::json(reports).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  // Not _Exit: what checks a process at its end (a leak checker) must have its turn.
  std::exit(0);
}

}  // namespace

Result<RankProcess> RankProcess::start(std::vector<int> ranks, const Work& work,
                                       const std::vector<RankProcess>& started) {
  const auto failed = [](const char* call) {
    return Status(MOEWAY_INTERNAL, fmt::format("{}: {}", call, std::strerror(errno)));
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed("pipe");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::fflush(nullptr);  // Or the child would print it once more.
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    for (const RankProcess& other : started)
      if (other.descriptor_ >= 0) close(other.descriptor_);
    run_child(work, ends[1], parent);
  }
  close(ends[1]);
  if (pid < 0) {
    Status status = failed("fork");
    close(ends[0]);
    return status;
  }
  return RankProcess(std::move(ranks), pid, ends[0]);
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : ranks_(std::move(other.ranks_)),
      pid_(std::exchange(other.pid_, -1)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      text_(std::move(other.text_)),
      reports_(std::move(other.reports_)),
      reaped_(std::exchange(other.reaped_, true)),
      killed_here_(other.killed_here_),
      wait_status_(other.wait_status_) {}

RankProcess::~RankProcess() {
  if (descriptor_ >= 0) close(descriptor_);
  if (reaped_) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void RankProcess::update() {
  read_all();
  if (!reaped_ && waitpid(pid_, &wait_status_, WNOHANG) == pid_) reaped_ = true;
}

void RankProcess::read_all() {
  char chunk[16384];
  while (descriptor_ >= 0) {
    const ssize_t got = read(descriptor_, chunk, sizeof(chunk));
    if (got > 0) {
      text_.append(chunk, static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    close(std::exchange(descriptor_, -1));
    parse_reports();
  }
}

void RankProcess::parse_reports() {
  const nlohmann::json parsed = nlohmann::json::parse(text_, nullptr, /*allow_exceptions=*/false);
  text_.clear();
  // A process that dies while it writes leaves half a text behind, which is no report.
  if (!parsed.is_array() || parsed.size() != ranks_.size()) return;
  reports_ = parsed.get<std::vector<RankReport>>();
}

bool RankProcess::failed() const { return first_failed_rank() >= 0; }

int RankProcess::first_failed_rank() const {
  for (const RankReport& report : reports_)
    if (!report.failure.empty()) return report.rank;
  return ended() && (reports_.empty() || !end_was_clean()) ? ranks_.front() : -1;
}

void RankProcess::kill() {
  if (reaped_ || killed_here_) return;
  killed_here_ = true;
  ::kill(pid_, SIGKILL);
}

bool RankProcess::end_was_clean() const { return WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0; }

std::string RankProcess::how_it_ended() const {
  if (WIFSIGNALED(wait_status_))
    return fmt::format("its process {} was killed by signal {} ({})", pid_, WTERMSIG(wait_status_),
                       strsignal(WTERMSIG(wait_status_)));
  return fmt::format("its process {} ended with exit code {}", pid_, WEXITSTATUS(wait_status_));
}

}  // namespace moeway::cli
