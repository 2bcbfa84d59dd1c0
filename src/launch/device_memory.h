// What the host side of a device's launches needs of CUDA's runtime, for host code that knows nothing of CUDA. Nothing here
// waits for more than the stream that it is given: other ranks' kernels on the same device may be waiting for this rank.
#pragma once

#include <moeway/status.h>

#include <cstddef>

namespace moeway::launch {

// Makes `device_index` the calling thread's device while it lives, and the one before afterwards.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device_index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = -1;
};

// A stream of the library's own, which no other stream waits for: a cudaStream_t.
Result<void*> stream_create();
void stream_destroy(void* stream);
Status stream_synchronize(void* stream);

// Device memory, zero-filled when the call returns; given back in the stream's order.
Result<std::byte*> device_allocate(size_t bytes, void* stream);
void device_free(std::byte* memory, void* stream);
// Fills device memory with a byte; returns when it is done.
Status device_fill(std::byte* memory, int value, size_t bytes, void* stream);
// Copies between host and device memory in either direction; returns when it is done.
Status device_copy(void* dst, const void* src, size_t bytes, void* stream);

// A block of kMappedBytes of host memory that every device reaches at the same address, zero-filled. Blocks are kept for the
// process's next ones: giving such memory back to CUDA would wait for every kernel of the device.
inline constexpr size_t kMappedBytes = 256;
Result<std::byte*> mapped_take();
void mapped_give(std::byte* block);

// What a cudaError_t says. Static memory.
const char* error_words(int error);
// Streaming multiprocessors of the calling thread's device.
int num_multiprocessors();
// Shared memory that a block may have.
int64_t max_shared_bytes();

}  // namespace moeway::launch
