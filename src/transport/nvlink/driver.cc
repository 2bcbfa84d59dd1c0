#include "transport/nvlink/driver.h"

#include <dlfcn.h>

#include "base/format.h"

namespace moeway::transport {
namespace {

// Loads one function; the first that is missing is named in `*missing`.
template <class Function>
void load(void* library, const char* name, Function* function, const char** missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr && *missing == nullptr) *missing = name;
}

Result<const Driver*> load_driver() {
  // Never closed: the driver's threads and exit handlers outlive any user of it.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return error(MOEWAY_UNAVAILABLE, "no CUDA driver: {}", dlerror());
  static Driver driver;
  const char* missing = nullptr;
  load(library, "cuGetErrorString", &driver.get_error_string, &missing);
  load(library, "cuInit", &driver.init, &missing);
  load(library, "cuDeviceGet", &driver.device_get, &missing);
  load(library, "cuDeviceGetCount", &driver.device_get_count, &missing);
  load(library, "cuDeviceGetName", &driver.device_get_name, &missing);
  load(library, "cuDeviceGetUuid_v2", &driver.device_get_uuid, &missing);
  load(library, "cuDeviceGetAttribute", &driver.device_get_attribute, &missing);
  load(library, "cuDevicePrimaryCtxRetain", &driver.primary_ctx_retain, &missing);
  load(library, "cuDevicePrimaryCtxRelease_v2", &driver.primary_ctx_release, &missing);
  load(library, "cuCtxPushCurrent_v2", &driver.ctx_push_current, &missing);
  load(library, "cuCtxPopCurrent_v2", &driver.ctx_pop_current, &missing);
  load(library, "cuCtxSynchronize", &driver.ctx_synchronize, &missing);
  load(library, "cuMemGetInfo_v2", &driver.mem_get_info, &missing);
  load(library, "cuMemGetAllocationGranularity", &driver.mem_get_allocation_granularity, &missing);
  load(library, "cuMemCreate", &driver.mem_create, &missing);
  load(library, "cuMemRelease", &driver.mem_release, &missing);
  load(library, "cuMemExportToShareableHandle", &driver.mem_export, &missing);
  load(library, "cuMemImportFromShareableHandle", &driver.mem_import, &missing);
  load(library, "cuMemAddressReserve", &driver.mem_address_reserve, &missing);
  load(library, "cuMemAddressFree", &driver.mem_address_free, &missing);
  load(library, "cuMemMap", &driver.mem_map, &missing);
  load(library, "cuMemUnmap", &driver.mem_unmap, &missing);
  load(library, "cuMemSetAccess", &driver.mem_set_access, &missing);
  load(library, "cuMemsetD8_v2", &driver.memset_d8, &missing);
  if (missing != nullptr) return error(MOEWAY_UNAVAILABLE, "the CUDA driver is too old: it lacks {}", missing);
  const CUresult result = driver.init(0);
  if (result != CUDA_SUCCESS) return error(MOEWAY_UNAVAILABLE, "{}", driver.check(result, "cuInit").message());
  return &driver;
}

}  // namespace

Result<const Driver*> Driver::get() {
  static const Result<const Driver*> driver = load_driver();
  return driver;
}

Status Driver::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return {};
  const char* words = nullptr;
  get_error_string(result, &words);
  return error(result == CUDA_ERROR_OUT_OF_MEMORY ? MOEWAY_OUT_OF_MEMORY : MOEWAY_INTERNAL, "{}: {} ({})", call,
               words == nullptr ? "unknown error" : words, static_cast<int>(result));
}

Result<DeviceContext> DeviceContext::enter(const Driver& driver, int device_index) {
  int count = 0;
  if (Status s = driver.check(driver.device_get_count(&count), "cuDeviceGetCount"); !s.ok()) return s;
  if (device_index < 0 || device_index >= count) {
    return invalid_argument("device_index is {}, expected 0 to {}: this process sees {} CUDA devices", device_index,
                            count - 1, count);
  }
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (Status s = driver.check(driver.device_get(&device, device_index), "cuDeviceGet"); !s.ok()) return s;
  if (Status s = driver.check(driver.primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain"); !s.ok())
    return s;
  if (Status s = driver.check(driver.ctx_push_current(context), "cuCtxPushCurrent"); !s.ok()) {
    driver.primary_ctx_release(device);
    return s;
  }
  return DeviceContext(driver, device);
}

DeviceContext::DeviceContext(DeviceContext&& other) noexcept : driver_(other.driver_), device_(other.device_) {
  other.driver_ = nullptr;
}

DeviceContext::~DeviceContext() {
  if (driver_ == nullptr) return;
  CUcontext context = nullptr;
  driver_->ctx_pop_current(&context);
  driver_->primary_ctx_release(device_);
}

}  // namespace moeway::transport
