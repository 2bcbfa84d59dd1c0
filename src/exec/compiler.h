// The only place that asks which compiler this is. MOEWAY_FN marks a function that kernels may call: host code, and
// device code as well under nvcc. MOEWAY_UNROLL before a loop keeps arrays that it indexes in registers;
// MOEWAY_ROLL keeps its code short: a kernel runs most of its code once, and waits for all of it to be fetched.
#pragma once

#if defined(__CUDACC__)
#define MOEWAY_FN __host__ __device__ inline
#else
#define MOEWAY_FN inline
#endif

// Before a function that is rarely called: code that would else take registers from its callers.
#if defined(__CUDACC__)
#define MOEWAY_RARE __host__ __device__ __noinline__ inline
#else
#define MOEWAY_RARE inline
#endif

#if defined(__CUDA_ARCH__)
#define MOEWAY_UNROLL _Pragma("unroll")
#define MOEWAY_ROLL _Pragma("unroll 1")
#else
#define MOEWAY_UNROLL
#define MOEWAY_ROLL
#endif
