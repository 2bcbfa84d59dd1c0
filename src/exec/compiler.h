// The only place that asks which compiler this is. MOEWAY_FN marks a function that kernels may call: host code, and
// device code as well under nvcc.
#pragma once

#if defined(__CUDACC__)
#define MOEWAY_FN __host__ __device__ inline
#else
#define MOEWAY_FN inline
#endif
