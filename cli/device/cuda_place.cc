#include "cli/device/cuda_place.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace moeway::cli {
namespace {

Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return Status();
  (void)cudaGetLastError();  // It is told here; the next check shall not find it again.
  const auto code = error == cudaErrorMemoryAllocation ? MOEWAY_OUT_OF_MEMORY : MOEWAY_INTERNAL;
  return Status(code, fmt::format("{}: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error)));
}

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(cudaStream_t stream) : stream_(stream) {}
  ~CudaRecording() override {
    if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
    if (end_ != nullptr) (void)cudaEventDestroy(end_);
    if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
  }

  Status capture(const std::function<Status()>& calls) {
    // Other threads of the process may allocate meanwhile: thread-local capture lets them.
    Status begun = check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    if (!begun.ok()) return begun;
    Status called = calls();
    Status ended = check(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");  // Also when a call failed.
    if (!called.ok()) return called;
    if (!ended.ok()) return ended;
    if (Status s = check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate"); !s.ok()) return s;
    if (Status s = check(cudaGraphUpload(executable_, stream_), "cudaGraphUpload"); !s.ok()) return s;
    if (Status s = check(cudaEventCreate(&begin_), "cudaEventCreate"); !s.ok()) return s;
    if (Status s = check(cudaEventCreate(&end_), "cudaEventCreate"); !s.ok()) return s;
    return check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize after cudaGraphUpload");
  }

  Result<double> replay_us() override {
    // The second launch is enqueued while the first runs, so the time between the events has no gap for the host.
    if (Status s = check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); !s.ok()) return s;
    if (Status s = check(cudaEventRecord(begin_, stream_), "cudaEventRecord"); !s.ok()) return s;
    if (Status s = check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); !s.ok()) return s;
    if (Status s = check(cudaEventRecord(end_, stream_), "cudaEventRecord"); !s.ok()) return s;
    if (Status s = check(cudaStreamSynchronize(stream_), "a replayed graph"); !s.ok()) return s;
    float ms = 0;
    if (Status s = check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime"); !s.ok()) return s;
    return 1000.0 * static_cast<double>(ms);
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

class CudaPlace final : public Place {
 public:
  explicit CudaPlace(int device_index) : device_index_(device_index) {}
  ~CudaPlace() override {
    (void)cudaSetDevice(device_index_);
    for (std::byte* block : blocks_) (void)cudaFree(block);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  Status open() {
    if (Status s = check(cudaSetDevice(device_index_), fmt::format("cudaSetDevice({})", device_index_).c_str());
        !s.ok())
      return s;
    return check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }

  moeway_device_type device_type() const override { return MOEWAY_CUDA; }
  int device_index() const override { return device_index_; }
  void* stream() const override { return stream_; }

  Result<std::byte*> allocate(int64_t bytes) override {
    void* memory = nullptr;
    const auto size = static_cast<size_t>(std::max(bytes, int64_t{1}));
    if (const Status s = check(cudaMalloc(&memory, size), "cudaMalloc"); !s.ok())
      return Status(s.code(), fmt::format("{} bytes on device {}: {}", bytes, device_index_, s.message()));
    blocks_.push_back(static_cast<std::byte*>(memory));
    return blocks_.back();
  }
  Status copy_in(std::byte* to, const std::byte* from, int64_t bytes) override {
    return copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  Status copy_out(std::byte* to, const std::byte* from, int64_t bytes) override {
    return copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  Status fill(std::byte* to, int value, int64_t bytes) override {
    if (bytes == 0) return Status();
    return check(cudaMemsetAsync(to, value, static_cast<size_t>(bytes), stream_), "cudaMemsetAsync");
  }
  Status copy_within(std::byte* to, const std::byte* from, int64_t bytes) override {
    if (bytes == 0) return Status();
    return check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_),
                 "cudaMemcpyAsync");
  }
  Status synchronize() override { return check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  Result<std::unique_ptr<Recording>> record(std::function<Status()> calls) override {
    auto recording = std::make_unique<CudaRecording>(stream_);
    if (Status status = recording->capture(calls); !status.ok()) return status;
    return std::unique_ptr<Recording>(std::move(recording));
  }

 private:
  // On the rank's own stream: a copy on the default stream would wait for nothing that the rank has enqueued.
  Status copy(std::byte* to, const std::byte* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return Status();
    if (Status s = check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_), "cudaMemcpyAsync");
        !s.ok())
      return s;
    return synchronize();
  }

  int device_index_;
  cudaStream_t stream_ = nullptr;
  std::vector<std::byte*> blocks_;
};

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

Result<std::unique_ptr<Place>> make_cuda_place(int device_index) {
  auto place = std::make_unique<CudaPlace>(device_index);
  if (Status status = place->open(); !status.ok()) return status;
  return std::unique_ptr<Place>(std::move(place));
}

Result<CudaFacts> look_at_cuda(int device_index) {
  CudaFacts facts;
  cudaDeviceProp device{};
  if (Status s = check(cudaGetDeviceProperties(&device, device_index), "cudaGetDeviceProperties"); !s.ok()) return s;
  facts.name = device.name;
  facts.multiprocessors = device.multiProcessorCount;
  facts.memory_bytes = static_cast<int64_t>(device.totalGlobalMem);
  int driver = 0, runtime = 0;
  if (Status s = check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"); !s.ok()) return s;
  if (Status s = check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion"); !s.ok()) return s;
  facts.driver_cuda = version_text(driver);
  facts.runtime_cuda = version_text(runtime);
  return facts;
}

}  // namespace moeway::cli
