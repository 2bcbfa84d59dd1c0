// Ranks as processes of one user on one host: a Unix-domain socket in a directory that is closed to everybody else.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "base/unix_socket.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/counted_collective.h"
#include "bootstrap/join.h"
#include "bootstrap/reception.h"
#include "bootstrap/remote_deadline.h"
#include "bootstrap/star.h"

namespace moeway::bootstrap {
namespace {

constexpr const char* kSocketName = "moeway.socket";
constexpr int kLooksForDeadLock = 200;  // A millisecond apart.

// Rank 0 holds a lock on the directory itself while the ranks meet: it goes when the process ends, however it ends, so
// whatever lies there under the socket's name is then a dead job's.
Status lock(const ClosedDirectory& directory, Deadline deadline) {
  const Deadline patience = sooner(deadline, Deadline::after(std::chrono::milliseconds(1000)));
  while (flock(directory.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return error(MOEWAY_UNAVAILABLE, "directory '{}' cannot be locked: {}", directory.path(),
                   std::generic_category().message(errno));
    }
    if (patience.passed()) {
      return error(MOEWAY_WRONG_STATE,
                   "another rank 0 meets its ranks in directory '{}', expected one job and one rank 0 per directory",
                   directory.path());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

Result<std::unique_ptr<Collective>> receive(const ClosedDirectory& directory, int num_ranks, Deadline deadline) {
  if (Status status = lock(directory, deadline); !status.ok()) return status;
  if (unlinkat(directory.fd(), kSocketName, 0) != 0 && errno != ENOENT) {
    return error(MOEWAY_UNAVAILABLE, "'{}/{}' is in the way and cannot be removed: {}", directory.path(), kSocketName,
                 std::generic_category().message(errno));
  }
  Result<Descriptor> listener = listen_unix(directory, kSocketName);
  if (!listener.ok()) return listener.status();
  Reception reception;
  reception.where = fmt::format("directory '{}'", directory.path());
  reception.same_user = true;
  reception.num_ranks = num_ranks;
  reception.on_end = [&] {
    unlinkat(directory.fd(), kSocketName, 0);
    flock(directory.fd(), LOCK_UN);
  };
  Result<std::vector<Descriptor>> streams = receive_ranks(std::move(listener).value(), reception, deadline);
  if (!streams.ok()) return streams.status();
  return make_star_center(std::move(streams).value());
}

// After a meeting that has failed: where rank 0 has ended without cleaning up, whoever is left does it. Under its lock,
// so that no other job's socket is there.
void remove_dead_socket(const ClosedDirectory& directory) {
  // A process that is killed lets go of its connections before its lock: it may not have come that far yet.
  for (int looks = 0; flock(directory.fd(), LOCK_EX | LOCK_NB) != 0; ++looks) {
    if (looks == kLooksForDeadLock) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  unlinkat(directory.fd(), kSocketName, 0);
  flock(directory.fd(), LOCK_UN);
}

Result<std::unique_ptr<Collective>> join(const ClosedDirectory& directory, int rank, int num_ranks, Deadline deadline) {
  const Result<std::string> path = directory.socket_path(kSocketName);
  if (!path.ok()) return path.status();
  Joining joining;
  joining.where = fmt::format("directory '{}'", directory.path());
  joining.rank = rank;
  joining.num_ranks = num_ranks;
  joining.connect = [&](Deadline) {
    Attempt attempt;
    const int failure = connect_unix(path.value(), &attempt.stream);
    if (failure != 0) attempt.problem = std::generic_category().message(failure);
    return attempt;
  };
  Result<Descriptor> stream = join_ranks(joining, deadline);
  if (!stream.ok()) {
    remove_dead_socket(directory);
    return stream.status();
  }
  return make_star_point(std::move(stream).value(), rank, num_ranks);
}

}  // namespace

Result<std::unique_ptr<Collective>> meet_local(const std::string& path, int rank, int num_ranks,
                                               std::chrono::milliseconds timeout) {
  if (Status status = check_place(rank, num_ranks); !status.ok()) return status;
  if (Status status = check_timeout(timeout); !status.ok()) return status;
  const Result<ClosedDirectory> directory = ClosedDirectory::open(path);
  if (!directory.ok()) return directory.status();
  if (num_ranks == 1) return make_star_center(std::vector<Descriptor>(1));
  const Deadline deadline = Deadline::after(std::min(timeout, kLongestWait));
  return rank == 0 ? receive(directory.value(), num_ranks, deadline)
                   : join(directory.value(), rank, num_ranks, deadline);
}

}  // namespace moeway::bootstrap
