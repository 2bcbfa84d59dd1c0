// The functions of the CUDA driver that the transport needs, found when they are first asked for: a program with this
// transport starts on a machine that has no driver.
#pragma once

#include <cuda.h>
#include <moeway/status.h>

namespace moeway::transport {

struct Driver {
  decltype(&cuGetErrorString) get_error_string;
  decltype(&cuInit) init;
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDeviceGetCount) device_get_count;
  decltype(&cuDeviceGetName) device_get_name;
  decltype(&cuDeviceGetUuid_v2) device_get_uuid;
  decltype(&cuDeviceGetAttribute) device_get_attribute;
  decltype(&cuDevicePrimaryCtxRetain) primary_ctx_retain;
  decltype(&cuDevicePrimaryCtxRelease_v2) primary_ctx_release;
  decltype(&cuCtxPushCurrent_v2) ctx_push_current;
  decltype(&cuCtxPopCurrent_v2) ctx_pop_current;
  decltype(&cuCtxSynchronize) ctx_synchronize;
  decltype(&cuMemGetInfo_v2) mem_get_info;
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity;
  decltype(&cuMemCreate) mem_create;
  decltype(&cuMemRelease) mem_release;
  decltype(&cuMemExportToShareableHandle) mem_export;
  decltype(&cuMemImportFromShareableHandle) mem_import;
  decltype(&cuMemAddressReserve) mem_address_reserve;
  decltype(&cuMemAddressFree) mem_address_free;
  decltype(&cuMemMap) mem_map;
  decltype(&cuMemUnmap) mem_unmap;
  decltype(&cuMemSetAccess) mem_set_access;
  decltype(&cuMemsetD8_v2) memset_d8;

  // Loads libcuda.so.1 and initialises it, once per process. MOEWAY_UNAVAILABLE, with the loader's or the driver's
  // words, where that cannot be. Thread-safe; the driver stays loaded.
  static Result<const Driver*> get();

  // OK, or MOEWAY_INTERNAL "cuMemMap: out of memory"; MOEWAY_OUT_OF_MEMORY where that is what it says.
  Status check(CUresult result, const char* call) const;
};

// Makes a device's primary context current for the calling thread while it lives, and keeps it alive.
class DeviceContext {
 public:
  static Result<DeviceContext> enter(const Driver& driver, int device_index);
  DeviceContext(DeviceContext&& other) noexcept;
  DeviceContext& operator=(DeviceContext&&) = delete;
  ~DeviceContext();

 private:
  DeviceContext(const Driver& driver, CUdevice device) : driver_(&driver), device_(device) {}
  const Driver* driver_;  // Null once moved from.
  CUdevice device_;
};

}  // namespace moeway::transport
