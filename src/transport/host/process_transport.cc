#include "transport/host/process_transport.h"

#include "base/format.h"
#include "transport/host/free_memory.h"
#include "transport/host/peer_processes.h"
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
  explicit ProcessTransport(PeerProcesses peers) : peers_(std::move(peers)) {}
  const char* name() const override { return "host processes"; }

  Result<std::unique_ptr<SymmetricHeap>> allocate(size_t bytes, Collective& collective, Deadline deadline) override {
    if (Status status = check_segments_fit(bytes, collective, deadline); !status.ok()) return status;
    const Result<Descriptor> mine = make_segment(bytes, deadline);
    if (Status status = collective.agree(mine.status(), deadline); !status.ok()) return status;
    const Result<std::vector<Descriptor>> all = peers_.exchange().all_gather(mine.value(), collective, deadline);
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

  bool peer_lost(int rank) const override { return peers_.lost(rank); }

 private:
  PeerProcesses peers_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_process_transport(const std::vector<Whereabouts>& ranks, Collective& collective,
                                                          Deadline deadline) {
  Result<PeerProcesses> peers = PeerProcesses::meet(ranks, collective, deadline);
  if (!peers.ok()) return peers.status();
  return std::unique_ptr<Transport>(std::make_unique<ProcessTransport>(std::move(peers).value()));
}

}  // namespace moeway::transport
