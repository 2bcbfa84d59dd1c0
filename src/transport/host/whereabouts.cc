#include "transport/host/whereabouts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "base/descriptor.h"
#include "base/foreign_text.h"
#include "base/rank_list.h"

namespace moeway::transport {
namespace {

std::array<uint8_t, 16> process_token() {
  static std::mutex mutex;
  static std::array<uint8_t, 16> token;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  // A forked child has its parent's token until it asks.
  if (owner != getpid()) {
    while (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    }
    owner = getpid();
  }
  return token;
}

}  // namespace

Whereabouts whereabouts() {
  Whereabouts here{};
  here.process = process_token();
  here.pid = getpid();
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) == 0) here.pid_namespace = info.st_ino;
  const Descriptor boot(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (boot.valid() && read(boot.get(), here.boot.data(), 36) != 36) here.boot = {};
  gethostname(here.host.data(), here.host.size() - 1);
  return here;
}

bool all_in_one_process(const std::vector<Whereabouts>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const Whereabouts& rank) {
    return rank.process == ranks[0].process && rank.pid == ranks[0].pid && rank.pid_namespace == ranks[0].pid_namespace;
  });
}

bool all_on_one_machine(const std::vector<Whereabouts>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const Whereabouts& rank) { return rank.boot == ranks[0].boot; });
}

std::string who_is_where(const std::vector<Whereabouts>& ranks) {
  std::vector<bool> named(ranks.size(), false);
  std::string text;
  for (size_t first = 0; first < ranks.size(); ++first) {
    if (named[first]) continue;
    std::vector<int> together;
    for (size_t r = first; r < ranks.size(); ++r) {
      if (ranks[r].boot != ranks[first].boot) continue;
      named[r] = true;
      together.push_back(static_cast<int>(r));
    }
    text +=
        fmt::format("{}{} on {}", text.empty() ? "" : ", ", rank_list(together), printable(text_of(ranks[first].host)));
  }
  return text;
}

}  // namespace moeway::transport
