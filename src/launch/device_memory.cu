#include "launch/device_memory.h"

#include <cuda_runtime.h>

#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace moeway::launch {
namespace {

Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // It is told here; the caller's next check shall not find it again.
  const auto code = error == cudaErrorMemoryAllocation ? MOEWAY_OUT_OF_MEMORY : MOEWAY_INTERNAL;
  return Status(code, std::string(call) + ": " + cudaGetErrorString(error));
}

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

struct MappedBlocks {
  std::mutex mutex;
  std::vector<std::byte*> free;
};

MappedBlocks& mapped_blocks() {
  static auto* blocks = new MappedBlocks;  // Lives as long as the process: objects may be destroyed at its exit.
  return *blocks;
}

}  // namespace

DeviceGuard::DeviceGuard(int device_index) {
  cudaGetDevice(&before_);
  if (before_ != device_index) cudaSetDevice(device_index);
}

DeviceGuard::~DeviceGuard() {
  if (before_ >= 0) cudaSetDevice(before_);
}

Result<void*> stream_create() {
  cudaStream_t stream = nullptr;
  if (Status s = check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"); !s.ok())
    return s;
  return static_cast<void*>(stream);
}

void stream_destroy(void* stream) { cudaStreamDestroy(as_stream(stream)); }

Status stream_synchronize(void* stream) {
  return check(cudaStreamSynchronize(as_stream(stream)), "cudaStreamSynchronize");
}

Result<std::byte*> device_allocate(size_t bytes, void* stream) {
  void* memory = nullptr;
  if (Status s = check(cudaMallocAsync(&memory, bytes, as_stream(stream)), "cudaMallocAsync"); !s.ok()) return s;
  const Status enqueued = check(cudaMemsetAsync(memory, 0, bytes, as_stream(stream)), "cudaMemsetAsync");
  const Status filled = enqueued.ok() ? stream_synchronize(stream) : enqueued;
  if (!filled.ok()) {
    cudaFreeAsync(memory, as_stream(stream));
    return filled;
  }
  return static_cast<std::byte*>(memory);
}

void device_free(std::byte* memory, void* stream) { cudaFreeAsync(memory, as_stream(stream)); }

Status device_fill(std::byte* memory, int value, size_t bytes, void* stream) {
  if (bytes == 0) return {};
  if (Status s = check(cudaMemsetAsync(memory, value, bytes, as_stream(stream)), "cudaMemsetAsync"); !s.ok()) return s;
  return stream_synchronize(stream);
}

Status device_copy(void* dst, const void* src, size_t bytes, void* stream) {
  if (Status s = check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, as_stream(stream)), "cudaMemcpyAsync");
      !s.ok()) {
    return s;
  }
  return stream_synchronize(stream);
}

Result<std::byte*> mapped_take() {
  MappedBlocks& blocks = mapped_blocks();
  const std::lock_guard<std::mutex> lock(blocks.mutex);
  if (blocks.free.empty()) {
    constexpr size_t kBlocks = 64;
    void* memory = nullptr;
    constexpr unsigned kFlags = cudaHostAllocMapped | cudaHostAllocPortable;
    if (Status s = check(cudaHostAlloc(&memory, kBlocks * kMappedBytes, kFlags), "cudaHostAlloc"); !s.ok()) return s;
    for (size_t i = 0; i < kBlocks; ++i) blocks.free.push_back(static_cast<std::byte*>(memory) + i * kMappedBytes);
  }
  std::byte* block = blocks.free.back();
  blocks.free.pop_back();
  std::memset(block, 0, kMappedBytes);
  return block;
}

void mapped_give(std::byte* block) {
  MappedBlocks& blocks = mapped_blocks();
  const std::lock_guard<std::mutex> lock(blocks.mutex);
  blocks.free.push_back(block);
}

const char* error_words(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

int num_multiprocessors() {
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

int64_t max_shared_bytes() {
  int device = 0, bytes = 48 * 1024;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

}  // namespace moeway::launch
