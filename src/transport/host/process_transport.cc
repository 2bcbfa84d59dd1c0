#include "transport/host/process_transport.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/format.h"
#include "transport/host/descriptor_exchange.h"
#include "transport/host/free_memory.h"
#include "transport/host/meeting_place.h"
#include "transport/host/segment.h"

namespace moeway::transport {
namespace {

class ProcessHeap final : public SymmetricHeap {
 public:
  ProcessHeap(size_t bytes, std::vector<Mapping> mappings) : bytes_(bytes), mappings_(std::move(mappings)) {}
  size_t bytes() const override { return bytes_; }
  std::byte* base(int rank) const override { return mappings_[static_cast<size_t>(rank)].base(); }

 private:
  const size_t bytes_;
  const std::vector<Mapping> mappings_;
};

class ProcessTransport final : public Transport {
 public:
  ProcessTransport(DescriptorExchange exchange, std::vector<Descriptor> processes)
      : exchange_(std::move(exchange)), processes_(std::move(processes)) {}
  const char* name() const override { return "host processes"; }

  Result<std::unique_ptr<SymmetricHeap>> allocate(size_t bytes, Collective& collective, Deadline deadline) override {
    if (Status status = check_segments_fit(bytes, collective, deadline); !status.ok()) return status;
    const Result<Descriptor> mine = make_segment(bytes, deadline);
    if (Status status = collective.agree(mine.status(), deadline); !status.ok()) return status;
    const Result<std::vector<Descriptor>> all = exchange_.all_gather(mine.value(), collective, deadline);
    if (!all.ok()) return all.status();
    std::vector<Mapping> mappings;
    Status status;
    for (size_t r = 0; r < all.value().size() && status.ok(); ++r) {
      const bool own = static_cast<int>(r) == collective.rank();
      Result<Mapping> mapping = Mapping::map(own ? mine.value() : all.value()[r], bytes);
      if (mapping.ok()) {
        mappings.push_back(std::move(mapping).value());
      } else {
        status = error(mapping.status().code(), "segment of rank {}: {}", r, mapping.status().message());
      }
    }
    if (status = collective.agree(status, deadline); !status.ok()) return status;
    return std::unique_ptr<SymmetricHeap>(std::make_unique<ProcessHeap>(bytes, std::move(mappings)));
  }

  bool peer_lost(int rank) const override {
    const Descriptor& process = processes_[static_cast<size_t>(rank)];
    if (!process.valid()) return false;
    pollfd entry{process.get(), POLLIN, 0};
    return poll(&entry, 1, 0) > 0 && (entry.revents & POLLIN) != 0;
  }

 private:
  DescriptorExchange exchange_;
  // What tells that a rank's process has ended: a descriptor that the process made of itself, so that it cannot stand
  // for another process that has got the same number later. Empty for this process, and where there is none.
  const std::vector<Descriptor> processes_;
};

// Empty where the kernel or its filters do not have it.
Descriptor own_process() {
#ifdef SYS_pidfd_open
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
#else
  return Descriptor();
#endif
}

}  // namespace

Result<std::unique_ptr<Transport>> make_process_transport(const std::vector<Whereabouts>& ranks, Collective& collective,
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
  return std::unique_ptr<Transport>(
      std::make_unique<ProcessTransport>(std::move(exchange), std::move(processes).value()));
}

}  // namespace moeway::transport
