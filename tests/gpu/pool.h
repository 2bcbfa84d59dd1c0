// Memory of tests on CUDA devices.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace moeway::gpu {

inline void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  // Nothing that follows can be trusted, and a kernel may still be running.
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
  std::abort();
}

// Pinned host memory that the device reaches at the same address: a test's data needs no copies. All of it is taken before the first
// kernel runs and kept: allocating or freeing such memory waits for all kernels, and here one rank's kernel waits for another rank's.
class Pool {
 public:
  static Pool& get() {
    static Pool pool;
    return pool;
  }
  void* take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& free = free_[class_of(bytes)];
    if (free.empty()) {
      const size_t size = size_t{1} << class_of(bytes);
      if (used_ + size > kBytes) throw std::bad_alloc();
      free.push_back(memory_ + used_);
      used_ += size;
    }
    void* block = free.back();
    free.pop_back();
    return block;
  }
  void give(void* block, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_[class_of(bytes)].push_back(block);
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 30;
  Pool() {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, kBytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
    memory_ = static_cast<std::byte*>(memory);
  }
  // Blocks are powers of two, of 256 bytes or more.
  static size_t class_of(size_t bytes) { return static_cast<size_t>(std::bit_width(std::max(bytes, size_t{256}) - 1)); }

  std::mutex mutex_;
  std::byte* memory_ = nullptr;
  size_t used_ = 0;
  std::array<std::vector<void*>, 64> free_;
};

template <class T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) {}  // NOLINT(google-explicit-constructor): as the standard's allocators do.
  T* allocate(size_t n) { return static_cast<T*>(Pool::get().take(n * sizeof(T))); }
  void deallocate(T* memory, size_t n) { Pool::get().give(memory, n * sizeof(T)); }
  friend bool operator==(const Allocator&, const Allocator&) { return true; }
};

}  // namespace moeway::gpu
