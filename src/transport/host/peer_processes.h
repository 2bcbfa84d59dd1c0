// The processes of a job's ranks on one machine: descriptors can be passed between them, and a rank knows when another
// one's has ended.
#pragma once

#include <moeway/status.h>

#include <utility>
#include <vector>

#include "base/collective.h"
#include "base/descriptor.h"
#include "transport/host/descriptor_exchange.h"
#include "transport/host/whereabouts.h"

namespace moeway::transport {

class PeerProcesses {
 public:
  // Collective; ranks may also be threads of one process. Fails on all ranks if it fails on one.
  static Result<PeerProcesses> meet(const std::vector<Whereabouts>& ranks, Collective& collective, Deadline deadline);

  DescriptorExchange& exchange() { return exchange_; }
  // See Transport::peer_lost. Thread-safe.
  bool lost(int rank) const;

 private:
  PeerProcesses(DescriptorExchange exchange, std::vector<Descriptor> processes)
      : exchange_(std::move(exchange)), processes_(std::move(processes)) {}

  DescriptorExchange exchange_;
  // What tells that a rank's process has ended: a descriptor that the process made of itself, so that it cannot stand
  // for another process that has got the same number later. Empty for this process, and where there is none.
  std::vector<Descriptor> processes_;
};

}  // namespace moeway::transport
