#include "gpu/pool.h"
#include "gpu/stream_work.h"

namespace moeway::gpu {
namespace {

__global__ void delay(int64_t nanoseconds) {
  uint64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < static_cast<uint64_t>(nanoseconds));
}

__global__ void compare(const uint32_t* seen, const uint32_t* expected, size_t words, unsigned long long* differences) {
  unsigned long long mine = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step)
    mine += seen[i] != expected[i] ? 1 : 0;
  if (mine != 0) atomicAdd_system(differences, mine);
}

__global__ void copy(uint32_t* to, const uint32_t* from, size_t words) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) to[i] = from[i];
}

__global__ void fill(uint32_t* to, uint32_t value, size_t words) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) to[i] = value;
}

constexpr int kBlocks = 16, kThreads = 256;

}  // namespace

void enqueue_copy(cudaStream_t stream, void* to, const void* from, size_t words) {
  if (words == 0) return;
  copy<<<kBlocks, kThreads, 0, stream>>>(static_cast<uint32_t*>(to), static_cast<const uint32_t*>(from), words);
  check_cuda(cudaGetLastError(), "copy");
}

void enqueue_fill(cudaStream_t stream, void* to, uint32_t value, size_t words) {
  if (words == 0) return;
  fill<<<kBlocks, kThreads, 0, stream>>>(static_cast<uint32_t*>(to), value, words);
  check_cuda(cudaGetLastError(), "fill");
}

void enqueue_delay(cudaStream_t stream, int64_t microseconds) {
  delay<<<1, 1, 0, stream>>>(microseconds * 1000);
  check_cuda(cudaGetLastError(), "delay");
}

void enqueue_compare(cudaStream_t stream, const void* seen, const void* expected, size_t words, uint64_t* differences) {
  if (words == 0) return;
  compare<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint32_t*>(seen), static_cast<const uint32_t*>(expected),
                                            words, reinterpret_cast<unsigned long long*>(differences));
  check_cuda(cudaGetLastError(), "compare");
}

}  // namespace moeway::gpu
