// Runs kernels on a CUDA device, for the bodies in *_test.inc: the same names as host_backend.h. All ranks share one device, each with a
// stream of its own and so few blocks that all of them are resident at the same time.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "gpu/pool.h"
#include "launch/direct_cuda.h"

namespace kernel_tests {

using moeway::gpu::Allocator;
using moeway::gpu::check_cuda;

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
