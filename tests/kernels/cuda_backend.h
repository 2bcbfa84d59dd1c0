// Runs kernels on a CUDA device, for the bodies in *_test.inc: the same names as host_backend.h. All ranks share one device, each with a
// stream of its own and so few blocks that all of them are resident at the same time.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "launch/direct_cuda.h"

namespace kernel_tests {

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

struct Geometry {
  int num_blocks;
};

inline constexpr Geometry kGeometries[] = {{1}, {3}, {7}};

// The links' host side would have to share 16-byte units with the device (faulty_links.h).
inline constexpr bool kLinksReach = false;

// Empty if kernels can run here; else why not.
inline std::string unavailable() {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error == cudaSuccess && num_devices > 0) return "";
  return std::string("no CUDA device: ") + cudaGetErrorString(error);
}

inline std::string name_of(const Geometry& geometry) { return "Blocks" + std::to_string(geometry.num_blocks); }

class Backend {
 public:
  Backend(const Geometry& geometry, const moeway::layout::Shape&, uint64_t) : geometry_(geometry) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    report_ = Allocator<moeway::exec::DeviceReport>().allocate(1);
  }
  ~Backend() {
    cudaStreamDestroy(stream_);
    Allocator<moeway::exec::DeviceReport>().deallocate(report_, 1);
  }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Where the device finds what a peer says about itself: 0 for ever, in this test's heaps as they are.
  void set_peer_words(const std::byte* words, int64_t stride) {
    peer_words_ = words;
    peer_word_stride_ = stride;
  }

  std::optional<moeway::exec::Failure> dispatch(moeway::launch::Half half,
                                                const moeway::kernels::direct::DispatchArgs& args,
                                                const moeway::peers::LoadStorePeers& peers) {
    check_cuda(static_cast<cudaError_t>(moeway::launch::dispatch(grid(), control(), half, args, peers)), "dispatch");
    return finish();
  }
  std::optional<moeway::exec::Failure> combine(moeway::launch::Half half, moeway::launch::Element rows,
                                               moeway::launch::Element sums,
                                               const moeway::kernels::direct::CombineArgs& args,
                                               const moeway::peers::LoadStorePeers& peers) {
    check_cuda(static_cast<cudaError_t>(moeway::launch::combine(grid(), control(), half, rows, sums, args, peers)),
               "combine");
    return finish();
  }

 private:
  moeway::launch::CudaGrid grid() const { return {geometry_.num_blocks, stream_}; }
  moeway::exec::DeviceControl control() {
    *report_ = {};
    return {report_, static_cast<uint64_t>(timeout_.count()) * 1000000, peer_words_, peer_word_stride_};
  }
  std::optional<moeway::exec::Failure> finish() {
    check_cuda(cudaStreamSynchronize(stream_), "kernel");
    if (report_->failed == 0) return std::nullopt;
    return report_->failure;
  }

  Geometry geometry_;
  cudaStream_t stream_ = nullptr;
  moeway::exec::DeviceReport* report_ = nullptr;
  const std::byte* peer_words_ = nullptr;
  int64_t peer_word_stride_ = 0;
  std::chrono::milliseconds timeout_{20000};
};

}  // namespace kernel_tests
