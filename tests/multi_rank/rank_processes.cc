// Ranks as processes: forked, their reports brought back through a pipe each, killed when time is up.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "multi_rank/rank_access.h"

namespace moeway::multi_rank {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int pipe = -1;  // The end that is read; -1 once the child has closed its own.
  std::vector<std::byte> report;
};

void write_all(int fd, const void* bytes, size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = write(fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // The parent is gone: nobody to tell.
    at += written;
    size -= static_cast<size_t>(written);
  }
}

void write_block(int fd, const void* bytes, size_t size) {
  const uint64_t length = size;
  write_all(fd, &length, sizeof(length));
  write_all(fd, bytes, size);
}

[[noreturn]] void run_child(int r, int pipe, pid_t parent, const std::string& directory, const RanksOptions& options,
                            const std::function<void(Rank&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // Nothing stays behind if the test itself is killed.
  if (getppid() != parent) _exit(1);
  Rank rank(r, options.num_ranks);
  RankAccess::run(
      rank, options, [&] { return Bootstrap::local(directory, r, options.num_ranks); }, body);
  write_block(pipe, RankAccess::failures(rank).data(), RankAccess::failures(rank).size());
  write_block(pipe, RankAccess::given(rank).data(), RankAccess::given(rank).size());
  std::fflush(nullptr);
  _exit(0);
}

// A negative pid where fork failed.
Child start_child(int r, const std::string& directory, const std::vector<Child>& others, const RanksOptions& options,
                  const std::function<void(Rank&)>& body) {
  Child child;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return child;
  const pid_t parent = getpid();
  child.pid = fork();
  if (child.pid == 0) {
    close(ends[0]);
    for (const Child& other : others) close(other.pipe);
    run_child(r, ends[1], parent, directory, options, body);
  }
  close(ends[1]);
  child.pipe = ends[0];
  return child;
}

// Reads what is there; closes the pipe at its end.
void read_some(Child& child) {
  std::byte buffer[65536];
  const ssize_t got = read(child.pipe, buffer, sizeof(buffer));
  if (got > 0) {
    child.report.insert(child.report.end(), buffer, buffer + got);
  } else if (got == 0 || errno != EINTR) {
    close(child.pipe);
    child.pipe = -1;
  }
}

// False if the time was up first.
bool read_reports(std::vector<Child>& children, Clock::time_point end) {
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<Child*> owners;
    for (Child& child : children) {
      if (child.pipe < 0) continue;
      waiting.push_back({child.pipe, POLLIN, 0});
      owners.push_back(&child);
    }
    if (waiting.empty()) return true;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    poll(waiting.data(), waiting.size(), static_cast<int>(left));
    for (size_t i = 0; i < waiting.size(); ++i)
      if (waiting[i].revents != 0) read_some(*owners[i]);
  }
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return std::string("ended by signal ") + std::to_string(WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) return "exit code " + std::to_string(WEXITSTATUS(status));
  return "";
}

// Takes one block off the report's front; false if it is cut short.
template <class Bytes>
bool take_block(const std::vector<std::byte>& report, size_t& at, Bytes& bytes) {
  uint64_t length = 0;
  if (report.size() - at < sizeof(length)) return false;
  std::memcpy(&length, report.data() + at, sizeof(length));
  at += sizeof(length);
  if (report.size() - at < length) return false;
  bytes.resize(length);
  if (length > 0) std::memcpy(bytes.data(), report.data() + at, length);
  at += length;
  return true;
}

}  // namespace

RanksResult run_processes(const RanksOptions& options, const std::function<void(Rank&)>& body) {
  RanksResult result;
  const PrivateDirectory directory;
  const Clock::time_point end = Clock::now() + options.limit;
  std::fflush(nullptr);  // Or children would print again what the parent has buffered.
  std::vector<Child> children;
  for (int r = 0; r < options.num_ranks; ++r)
    children.push_back(start_child(r, directory.path(), children, options, body));
  const bool in_time = read_reports(children, end);
  for (size_t r = 0; r < children.size(); ++r) {
    Child& child = children[r];
    const std::string name = "rank " + std::to_string(r) + ": ";
    if (child.pid < 0) {
      result.failures += name + "could not be started\n";
      continue;
    }
    if (child.pipe >= 0) {
      kill(child.pid, SIGKILL);
      close(child.pipe);
    }
    int status = 0;
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    const std::string ended = how_it_ended(status);
    if (!in_time && child.pipe >= 0) result.failures += name + "hangs: not done in time, killed\n";
    const bool expected = WIFSIGNALED(status) && std::find(options.may_die.begin(), options.may_die.end(),
                                                           static_cast<int>(r)) != options.may_die.end();
    if (in_time && !ended.empty() && !expected) result.failures += name + ended + "\n";
    size_t at = 0;
    std::string failures;
    std::vector<std::byte> given;
    if (take_block(child.report, at, failures) && take_block(child.report, at, given)) {
      result.failures += failures;
    } else if (in_time && ended.empty()) {
      result.failures += name + "gave no report\n";
    }
    result.given.push_back(std::move(given));
  }
  for (const std::string& entry : directory.entries()) result.failures += "left behind: " + entry + "\n";
  return result;
}

}  // namespace moeway::multi_rank
