// Work for a stream, for tests that need a rank to be late, or to look at results without stopping for them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace moeway::gpu {

// Keeps the stream busy for about so long.
void enqueue_delay(cudaStream_t stream, int64_t microseconds);

// Copies and fills of 32-bit words. Kernels, not cudaMemcpyAsync: between pinned host memory that makes the host wait.
void enqueue_copy(cudaStream_t stream, void* to, const void* from, size_t words);
void enqueue_fill(cudaStream_t stream, void* to, uint32_t value, size_t words);

// Adds the number of 32-bit words in which the two differ to *differences; all of it memory that the device reaches.
void enqueue_compare(cudaStream_t stream, const void* seen, const void* expected, size_t words, uint64_t* differences);

}  // namespace moeway::gpu
