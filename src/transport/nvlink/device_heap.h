// One symmetric allocation on CUDA devices: every rank's segment mapped at one range of addresses, rank r's at base + r
// * segment.
#pragma once

#include <moeway/status.h>

#include <vector>

#include "base/descriptor.h"
#include "transport/heap.h"
#include "transport/nvlink/driver.h"

namespace moeway::transport {

// Takes the steps of an allocation one by one, so that ranks can agree between them; what has been taken is given back
// by the destructor.
class DeviceHeap final : public SymmetricHeap {
 public:
  DeviceHeap(const Driver& driver, CUdevice device, int rank, int num_ranks, size_t bytes)
      : driver_(driver),
        device_(device),
        rank_(rank),
        bytes_(bytes),
        handles_(static_cast<size_t>(num_ranks)),
        mapped_(handles_.size()) {}
  ~DeviceHeap() override;

  // This rank's memory, and a descriptor with which other ranks can map it.
  Result<Descriptor> create();
  // A range of addresses for all segments.
  Status reserve();
  // Rank r's segment; `descriptor` is its rank's, and not used for this rank's own.
  Status map(int rank, const Descriptor& descriptor);
  // This rank's segment becomes zero.
  Status clear();

  size_t bytes() const override { return bytes_; }
  std::byte* base(int rank) const override {
    return reinterpret_cast<std::byte*>(range_ + segment_ * static_cast<size_t>(rank));
  }

 private:
  const Driver& driver_;
  const CUdevice device_;
  const int rank_;
  const size_t bytes_;
  size_t segment_ = 0;  // bytes_, rounded up to what the device maps.
  bool retained_ = false;
  CUdeviceptr range_ = 0;
  std::vector<CUmemGenericAllocationHandle> handles_;  // 0: none.
  std::vector<bool> mapped_;
};

}  // namespace moeway::transport
