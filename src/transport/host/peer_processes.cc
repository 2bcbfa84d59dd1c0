#include "transport/host/peer_processes.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transport/host/meeting_place.h"

namespace moeway::transport {
namespace {

// Empty where the kernel or its filters do not have it.
Descriptor own_process() {
#ifdef SYS_pidfd_open
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
#else
  return Descriptor();
#endif
}

}  // namespace

Result<PeerProcesses> PeerProcesses::meet(const std::vector<Whereabouts>& ranks, Collective& collective,
                                          Deadline deadline) {
  Result<std::vector<Descriptor>> streams = connect_processes(ranks, collective, deadline);
  if (!streams.ok()) return streams.status();
  DescriptorExchange exchange(std::move(streams).value());
  Result<std::vector<Descriptor>> processes = exchange.all_gather(own_process(), collective, deadline);
  if (!processes.ok()) return processes.status();
  for (size_t r = 0; r < ranks.size(); ++r) {
    // A rank that is a thread of this process ends when this one does.
    if (ranks[r].process == ranks[static_cast<size_t>(collective.rank())].process) processes.value()[r].reset();
  }
  return PeerProcesses(std::move(exchange), std::move(processes).value());
}

bool PeerProcesses::lost(int rank) const {
  const Descriptor& process = processes_[static_cast<size_t>(rank)];
  if (!process.valid()) return false;
  pollfd entry{process.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & POLLIN) != 0;
}

}  // namespace moeway::transport
