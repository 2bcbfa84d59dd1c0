// Ranks on the CUDA devices of this machine, dealt out in turn. Tensors lie in pinned host memory, which every device
// reaches at the same address, so a test reads and writes them as on the host.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "gpu/pool.h"
#include "gpu/setting.h"
#include "multi_rank/place.h"

namespace moeway::multi_rank::place {
namespace {

using gpu::check_cuda;

struct Seat {
  int device = 0;
  cudaStream_t stream = nullptr;
};
thread_local Seat seat;

}  // namespace

bool on_devices() { return true; }

As rank_form(As) { return gpu::ranks_are_processes() ? As::kProcesses : As::kThreads; }

void prepare() {
  gpu::Pool::get();
  int before = 0;
  cudaGetDevice(&before);
  // The runtime sets a device up when it is first used, which waits for what runs there.
  for (int device = 0; device < gpu::num_devices(); ++device) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaFree(nullptr), "cudaFree");
  }
  cudaSetDevice(before);
}

void enter(int rank, int) {
  seat.device = gpu::device_of(rank);
  if (gpu::devices_are_masked()) {
    setenv("CUDA_VISIBLE_DEVICES", std::to_string(seat.device).c_str(), 1);
    seat.device = 0;
  }
  check_cuda(cudaSetDevice(seat.device), "cudaSetDevice");
  if (gpu::ranks_are_processes()) gpu::Pool::get();
  // A stream that the default stream does not wait for: ranks may share the device.
  check_cuda(cudaStreamCreateWithFlags(&seat.stream, cudaStreamNonBlocking), "cudaStreamCreate");
}

void leave() {
  check_cuda(cudaStreamSynchronize(seat.stream), "a kernel");
  cudaStreamDestroy(seat.stream);
  seat.stream = nullptr;
}

CommunicatorOptions communicator_options() {
  CommunicatorOptions options;
  options.device_type = MOEWAY_CUDA;
  options.device_index = seat.device;
  return options;
}

void* stream() { return seat.stream; }

Tensor here(Tensor tensor) {
  tensor.device_type = MOEWAY_CUDA;
  tensor.device_index = seat.device;
  return tensor;
}

Status settle(const AllToAll& object, Status status) {
  if (!status.ok()) return status;
  if (const cudaError_t error = cudaStreamSynchronize(seat.stream); error != cudaSuccess)
    return Status(MOEWAY_INTERNAL, std::string("cudaStreamSynchronize: ") + cudaGetErrorString(error));
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    return Status(MOEWAY_INTERNAL, std::string("a CUDA error stays behind: ") + cudaGetErrorString(error));
  return object.status();
}

std::byte* readable(const Tensor& view, Memory<std::byte>* copy) {
  if (view.ndim == 0 || view.shape[0] == 0) return nullptr;
  const int64_t elements = (view.shape[0] - 1) * view.strides[0] + view.shape[1];
  copy->resize(static_cast<size_t>(elements * moeway_dtype_bytes(view.dtype)));
  check_cuda(cudaMemcpyAsync(copy->data(), view.data, copy->size(), cudaMemcpyDefault, seat.stream), "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(seat.stream), "cudaStreamSynchronize");
  return copy->data();
}

void* take(size_t bytes) { return gpu::Pool::get().take(bytes); }
void give(void* memory, size_t bytes) { gpu::Pool::get().give(memory, bytes); }

void* take_sparse(size_t bytes) {
  void* memory = nullptr;
  if (cudaMallocManaged(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return memory;
}
void give_sparse(void* memory, size_t) { cudaFree(memory); }

}  // namespace moeway::multi_rank::place
