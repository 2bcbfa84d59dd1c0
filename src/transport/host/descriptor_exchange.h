// An all-gather of open descriptors between processes of one machine.
#pragma once

#include <moeway/status.h>

#include <cstdint>
#include <vector>

#include "base/collective.h"
#include "base/descriptor.h"

namespace moeway::transport {

class DescriptorExchange {
 public:
  // `streams` as connect_processes gives them.
  explicit DescriptorExchange(std::vector<Descriptor> streams) : streams_(std::move(streams)) {}

  // Collective. Everybody's descriptor in rank order, this rank's own place empty, and the places of ranks that have
  // given none. Fails on all ranks if it fails on one.
  Result<std::vector<Descriptor>> all_gather(const Descriptor& mine, Collective& collective, Deadline deadline);

 private:
  Status as_center(const Descriptor& mine, std::vector<Descriptor>* all, Deadline deadline);
  Status as_point(const Descriptor& mine, int rank, std::vector<Descriptor>* all, Deadline deadline);

  std::vector<Descriptor> streams_;
  std::vector<uint8_t> given_;  // Which ranks give one this time.
  uint64_t call_ = 0;
  bool broken_ = false;  // Descriptors may be under way that nobody waits for.
};

}  // namespace moeway::transport
