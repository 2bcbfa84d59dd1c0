// Ranks for tests: forked children with a hard time limit, or threads. What a rank returns is its outcome: "" is well.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace moeway::unit {

using RankBody = std::function<std::string(int rank)>;

// Children of this process. Whatever happens, none of them outlives this object.
class RankProcesses {
 public:
  RankProcesses(int num_ranks, const RankBody& body) {
    for (int rank = 0; rank < num_ranks; ++rank) start(rank, body);
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses() {
    for (Child& child : children_) {
      if (child.pid > 0) kill(child.pid, SIGKILL);
      if (child.pid > 0) waitpid(child.pid, nullptr, 0);
      close(child.pipe);
    }
  }

  void send(int rank, int signal) { kill(children_[static_cast<size_t>(rank)].pid, signal); }

  // Every child's outcome; "killed by signal 9" or "exit code 3" where it gave none, "still running" at the limit.
  std::vector<std::string> outcomes(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    std::vector<std::string> all;
    for (Child& child : children_) all.push_back(outcome(child, end));
    return all;
  }

 private:
  struct Child {
    pid_t pid;
    int pipe;
  };

  void start(int rank, const RankBody& body) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) abort();
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // 0: the parent is in another PID namespace.
      if (getppid() != parent && getppid() != 0) _exit(1);
      for (const Child& sibling : children_) close(sibling.pipe);
      close(ends[0]);
      const std::string outcome = body(rank);
      if (write(ends[1], outcome.data(), outcome.size()) < 0) _exit(2);
      _exit(0);
    }
    close(ends[1]);
    children_.push_back({pid, ends[0]});
  }

  static std::string outcome(Child& child, std::chrono::steady_clock::time_point end) {
    std::string text;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd entry{child.pipe, POLLIN, 0};
      const int ready = poll(&entry, 1, left.count() > 0 ? static_cast<int>(left.count()) : 0);
      if (ready == 0) return "still running";
      std::array<char, 1024> part{};
      const ssize_t got = read(child.pipe, part.data(), part.size());
      if (got <= 0) break;
      text.append(part.data(), static_cast<size_t>(got));
    }
    int status = 0;
    waitpid(child.pid, &status, 0);
    child.pid = -1;
    if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) return "exit code " + std::to_string(WEXITSTATUS(status));
    return text;
  }

  std::vector<Child> children_;
};

inline std::vector<std::string> run_processes(int num_ranks, const RankBody& body,
                                              std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  return RankProcesses(num_ranks, body).outcomes(limit);
}

inline std::vector<std::string> run_threads(int num_ranks, const RankBody& body) {
  std::vector<std::string> outcomes(static_cast<size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank)
    threads.emplace_back([&, rank] { outcomes[static_cast<size_t>(rank)] = body(rank); });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

inline std::vector<std::string> all_well(int num_ranks) {
  return std::vector<std::string>(static_cast<size_t>(num_ranks));
}

// A new empty directory with mode 0700, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moeway-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) abort();
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
      names.push_back(std::filesystem::relative(entry.path(), path_).string());
    return names;
  }

 private:
  std::string path_;
};

}  // namespace moeway::unit
