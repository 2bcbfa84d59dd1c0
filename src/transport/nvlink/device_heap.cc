#include "transport/nvlink/device_heap.h"

#include "base/format.h"

namespace moeway::transport {
namespace {

// Memory of the device that leaves this process as a file descriptor. Fabric handles, which reach other machines of one
// NVLink domain, are refused by the driver on many machines and are not needed on one.
CUmemAllocationProp properties(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

}  // namespace

DeviceHeap::~DeviceHeap() {
  for (size_t r = 0; r < handles_.size(); ++r) {
    if (mapped_[r]) driver_.mem_unmap(range_ + segment_ * r, segment_);
    if (handles_[r] != 0) driver_.mem_release(handles_[r]);
  }
  if (range_ != 0) driver_.mem_address_free(range_, segment_ * handles_.size());
  if (retained_) driver_.primary_ctx_release(device_);
}

Result<Descriptor> DeviceHeap::create() {
  CUcontext context = nullptr;
  if (Status s = driver_.check(driver_.primary_ctx_retain(&context, device_), "cuDevicePrimaryCtxRetain"); !s.ok())
    return s;
  retained_ = true;  // Mappings end with the context.
  const CUmemAllocationProp prop = properties(device_);
  size_t granularity = 0;
  if (Status s = driver_.check(
          driver_.mem_get_allocation_granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "cuMemGetAllocationGranularity");
      !s.ok()) {
    return s;
  }
  segment_ = (bytes_ + granularity - 1) / granularity * granularity;
  auto& own = handles_[static_cast<size_t>(rank_)];
  if (Status s = driver_.check(driver_.mem_create(&own, segment_, &prop, 0), "cuMemCreate"); !s.ok()) {
    size_t free_bytes = 0, total_bytes = 0;
    driver_.mem_get_info(&free_bytes, &total_bytes);
    return error(s.code(), "{}: a segment of {} bytes on device {}, which has {} of {} bytes free", s.message(),
                 segment_, device_, free_bytes, total_bytes);
  }
  int fd = -1;
  if (Status s = driver_.check(driver_.mem_export(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                               "cuMemExportToShareableHandle");
      !s.ok()) {
    return s;
  }
  return Descriptor(fd);
}

Status DeviceHeap::reserve() {
  return driver_.check(driver_.mem_address_reserve(&range_, segment_ * handles_.size(), 0, 0, 0),
                       "cuMemAddressReserve");
}

Status DeviceHeap::map(int rank, const Descriptor& descriptor) {
  const auto r = static_cast<size_t>(rank);
  if (rank != rank_) {
    void* shareable = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.get()));
    if (Status s = driver_.check(driver_.mem_import(&handles_[r], shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                 "cuMemImportFromShareableHandle");
        !s.ok()) {
      return s;
    }
  }
  const CUdeviceptr address = range_ + segment_ * r;
  if (Status s = driver_.check(driver_.mem_map(address, segment_, 0, handles_[r], 0), "cuMemMap"); !s.ok()) return s;
  mapped_[r] = true;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver_.check(driver_.mem_set_access(address, segment_, &access, 1), "cuMemSetAccess");
}

Status DeviceHeap::clear() {
  if (Status s =
          driver_.check(driver_.memset_d8(range_ + segment_ * static_cast<size_t>(rank_), 0, segment_), "cuMemsetD8");
      !s.ok()) {
    return s;
  }
  return driver_.check(driver_.ctx_synchronize(), "cuCtxSynchronize");
}

}  // namespace moeway::transport
