#include "transport/host/meeting_place.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/foreign_text.h"
#include "base/format.h"
#include "base/stream.h"
#include "base/unix_socket.h"

namespace moeway::transport {
namespace {

constexpr const char* kSocketName = "socket";

// What rank 0 chooses before it makes anything, so that all know what may have to be removed.
struct Plan {
  std::array<char, 512> directory;
  std::array<uint8_t, 32> token;  // Who shows it is a rank of this job.
};

struct Hello {
  std::array<uint8_t, 32> token;
  uint32_t rank;
};

std::string base_directory() {
  for (const char* variable : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && value[0] == '/' && std::strlen(value) < 400 && access(value, W_OK | X_OK) == 0)
      return value;
  }
  return "/tmp";
}

Plan make_plan() {
  Plan plan{};
  std::array<uint8_t, 48> random{};
  while (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
  }
  std::copy_n(random.begin(), plan.token.size(), plan.token.begin());
  std::string name = base_directory() + "/moeway-";
  for (size_t i = plan.token.size(); i < random.size(); ++i) name += fmt::format("{:02x}", random[i]);
  std::copy_n(name.begin(), std::min(name.size(), plan.directory.size() - 1), plan.directory.begin());
  return plan;
}

// Everybody removes the directory when the meeting fails, so that whatever rank 0 says, it must be one that a plan makes.
bool is_plan(const Plan& plan) {
  const std::string_view path = text_of(plan.directory);
  constexpr std::string_view kPrefix = "/moeway-";
  constexpr size_t kDigits = 32;
  if (path.size() < kPrefix.size() + kDigits || path.size() == plan.directory.size() || path[0] != '/') return false;
  const std::string_view name = path.substr(path.size() - kPrefix.size() - kDigits);
  return name.substr(0, kPrefix.size()) == kPrefix &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

void remove_place(const std::string& directory) {
  unlink((directory + "/" + kSocketName).c_str());
  rmdir(directory.c_str());
}

// Rank 0's socket.
struct Place {
  Descriptor listener;
  Descriptor path;  // Stands for the socket's name when that is gone.
};

// `hidden`: with no name left when it returns.
Status open_place(const std::string& directory, bool hidden, Place* place) {
  if (mkdir(directory.c_str(), 0700) != 0) {
    return error(MOEWAY_UNAVAILABLE, "cannot make directory '{}': {}", directory,
                 std::generic_category().message(errno));
  }
  Status status;
  if (Result<ClosedDirectory> closed = ClosedDirectory::open(directory); !closed.ok()) {
    status = Status(MOEWAY_UNAVAILABLE, closed.status().message());
  } else if (Result<Descriptor> listener = listen_unix(closed.value(), kSocketName); !listener.ok()) {
    status = listener.status();
  } else {
    place->listener = std::move(listener).value();
    place->path = Descriptor(openat(closed.value().fd(), kSocketName, O_PATH | O_CLOEXEC | O_NOFOLLOW));
  }
  // Ranks that have given up meanwhile, since one of them has died, remove what they know of.
  if (!status.ok() && access(directory.c_str(), F_OK) != 0 && errno == ENOENT) {
    status = error(MOEWAY_PEER_LOST, "directory '{}' was removed while rank 0 opened it: another rank has given up",
                   directory);
  }
  if (hidden || !status.ok()) remove_place(directory);
  return status;
}

Status connect_to(const std::string& path, Deadline deadline, Descriptor* stream) {
  for (;;) {
    const int failure = connect_unix(path, stream);
    if (failure == 0) return {};
    if (failure != EAGAIN || deadline.passed()) {
      return error(MOEWAY_UNAVAILABLE, "cannot connect to rank 0's socket {}: {}", path,
                   std::generic_category().message(failure));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Meeting {
 public:
  Meeting(const std::vector<Whereabouts>& ranks, Collective& collective, Deadline deadline)
      : ranks_(ranks), collective_(collective), deadline_(deadline) {}

  Result<std::vector<Descriptor>> run() {
    const Result<std::vector<Plan>> plans = collective_.all_gather_value(make_plan(), deadline_);
    if (!plans.ok()) return plans.status();
    plan_ = plans.value()[0];
    if (!is_plan(plan_)) {
      return error(MOEWAY_INTERNAL, "rank 0 meets the others in '{}', expected a directory of its own making",
                   printable(text_of(plan_.directory)));
    }
    directory_ = text_of(plan_.directory);
    const bool hidden =
        ranks_[0].pid_namespace != 0 && std::all_of(ranks_.begin(), ranks_.end(), [&](const Whereabouts& rank) {
          return rank.pid_namespace == ranks_[0].pid_namespace;
        });
    Result<std::vector<Descriptor>> streams = attempt(hidden);
    if (hidden && !streams.ok() && all_in_step_) streams = attempt(false);
    // Rank 0 may have ended before it could.
    if (!streams.ok()) remove_place(directory_);
    return streams;
  }

 private:
  // Everything that can keep ranks waiting for each other is a step of the collective: nobody waits on a socket.
  Result<std::vector<Descriptor>> attempt(bool hidden) {
    all_in_step_ = false;
    Place place;
    Status status;
    if (collective_.rank() == 0) status = open_place(directory_, hidden, &place);
    if (status = collective_.agree(status, deadline_); !status.ok()) return status;
    const Result<std::vector<int32_t>> paths = collective_.all_gather_value<int32_t>(place.path.get(), deadline_);
    if (!paths.ok()) return paths.status();

    std::vector<Descriptor> streams(ranks_.size());
    if (collective_.rank() != 0) {
      status = hidden
                   ? connect_to(fmt::format("/proc/{}/fd/{}", ranks_[0].pid, paths.value()[0]), deadline_, &streams[0])
                   : connect_by_name(&streams[0]);
      if (status.ok()) status = say_hello(streams[0]);
    }
    status = collective_.agree(status, deadline_);
    if (collective_.rank() == 0 && !hidden) remove_place(directory_);
    if (!status.ok()) {
      // Whoever comes after rank 0's end finds no directory, or no socket: then its end is what has happened.
      if (Status usable = collective_.agree({}, deadline_); !usable.ok()) return usable;
    }
    all_in_step_ = true;
    if (!status.ok()) return status;

    if (collective_.rank() == 0) status = accept_all(place.listener, &streams);
    if (status = collective_.agree(status, deadline_); !status.ok()) return status;
    return streams;
  }

  Status connect_by_name(Descriptor* stream) {
    const Result<ClosedDirectory> directory = ClosedDirectory::open(directory_);
    if (!directory.ok()) {
      return error(MOEWAY_UNAVAILABLE, "rank 0's {}; ranks of one machine must share rank 0's temporary directory",
                   directory.status().message());
    }
    const Result<std::string> path = directory.value().socket_path(kSocketName);
    if (!path.ok()) return path.status();
    return connect_to(path.value(), deadline_, stream);
  }

  Status say_hello(const Descriptor& stream) {
    const Hello hello{plan_.token, static_cast<uint32_t>(collective_.rank())};
    if (Outgoing(&hello, sizeof(hello)).step(stream.get()) == Progress::kDone) return {};
    return error(MOEWAY_INTERNAL, "rank 0's socket takes no bytes");
  }

  // All ranks have connected and sent their hello, so there is nothing to wait for.
  Status accept_all(const Descriptor& listener, std::vector<Descriptor>* streams) {
    for (;;) {
      Descriptor stream(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!stream.valid()) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EAGAIN) return system_error("accept4", errno);
        break;
      }
      Hello hello{};
      if (Incoming(&hello, sizeof(hello)).step(stream.get()) != Progress::kDone) continue;
      if (!peer_is_same_user(stream.get()) || hello.token != plan_.token || hello.rank >= streams->size()) continue;
      (*streams)[hello.rank] = std::move(stream);
    }
    for (size_t r = 1; r < streams->size(); ++r) {
      if (!(*streams)[r].valid()) return error(MOEWAY_INTERNAL, "rank {} is not among those who have connected", r);
    }
    return {};
  }

  const std::vector<Whereabouts>& ranks_;
  Collective& collective_;
  const Deadline deadline_;
  Plan plan_{};
  std::string directory_;
  bool all_in_step_ = false;  // The collective is usable: a failed attempt may be followed by another.
};

}  // namespace

Result<std::vector<Descriptor>> connect_processes(const std::vector<Whereabouts>& ranks, Collective& collective,
                                                  Deadline deadline) {
  return Meeting(ranks, collective, deadline).run();
}

}  // namespace moeway::transport
