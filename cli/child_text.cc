#include "cli/child_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace moeway::cli {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void run_child(const std::function<std::string()>& work, int descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string text = work();
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(descriptor, text.data() + done, text.size() - done);
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  std::_Exit(done == text.size() ? 0 : 1);
}

// False if the limit passed first.
bool read_until_end(int descriptor, Clock::time_point limit, std::string& text) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
    pollfd waited{descriptor, POLLIN, 0};
    const int ready = poll(&waited, 1, static_cast<int>(std::max(left, decltype(left){0})));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char chunk[4096];
    const ssize_t got = read(descriptor, chunk, sizeof(chunk));
    if (got <= 0) return true;
    text.append(chunk, static_cast<size_t>(got));
  }
}

}  // namespace

Result<std::string> text_from_child(const std::function<std::string()>& work, std::chrono::milliseconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status(MOEWAY_INTERNAL, fmt::format("pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) run_child(work, ends[1]);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return Status(MOEWAY_INTERNAL, fmt::format("fork: {}", std::strerror(errno)));
  }
  std::string text;
  const bool in_time = read_until_end(ends[0], Clock::now() + limit, text);
  close(ends[0]);
  if (!in_time) kill(pid, SIGKILL);
  int wait_status = 0;
  while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) continue;
  if (!in_time) return Status(MOEWAY_DEADLINE_EXCEEDED, fmt::format("no answer within {} ms", limit.count()));
  if (WIFSIGNALED(wait_status))
    return Status(MOEWAY_INTERNAL,
                  fmt::format("ended by signal {} ({})", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status))));
  if (wait_status != 0) return Status(MOEWAY_INTERNAL, fmt::format("ended with code {}", WEXITSTATUS(wait_status)));
  return text;
}

}  // namespace moeway::cli
