// Part of c_api.h, which includes it: outcomes and tensors.
#ifndef MOEWAY_C_API_TYPES_H_
#define MOEWAY_C_API_TYPES_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER)
#define MOEWAY_API
#else
#define MOEWAY_API __attribute__((visibility("default")))
#endif

// In C++ an enumeration holds any int, so that a wrong value from a caller can be looked at and refused; in C it does
// anyway.
#ifdef __cplusplus
#define MOEWAY_ENUM_TYPE : int
#else
#define MOEWAY_ENUM_TYPE
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- Status

typedef enum moeway_status MOEWAY_ENUM_TYPE {
  MOEWAY_OK = 0,
  MOEWAY_INVALID_ARGUMENT = 1,   // A caller's mistake in an argument. Nothing was sent; a correct call may follow.
  MOEWAY_WRONG_STATE = 2,        // Call out of order, closed object, or a routing handle that is no longer valid.
  MOEWAY_MISMATCH = 3,           // Ranks disagree on a value that must be equal.
  MOEWAY_DEADLINE_EXCEEDED = 4,  // A peer did not do its part in time. The object has failed: close it.
  MOEWAY_PEER_LOST = 5,  // A peer's process has ended, or a peer reported a failure. The object has failed: close it.
  MOEWAY_OUT_OF_MEMORY = 6,  // Memory that was asked for cannot be had.
  MOEWAY_UNAVAILABLE = 7,    // This machine or build lacks what was asked for.
  MOEWAY_INTERNAL = 8,       // A fault of the library or of the operating system.
  MOEWAY_OVERFLOW = 9        // More rows came than max_recv_tokens has room for. The object has failed: close it.
} moeway_status;

// The message of the last failed call of this thread, "" if none. Valid until the thread's next failing call.
MOEWAY_API const char* moeway_last_error(void);

// "INVALID_ARGUMENT" and so on; "UNKNOWN" for a value that is none of them. Static memory.
MOEWAY_API const char* moeway_status_name(moeway_status status);

// What timeouts are when nothing else is said: 30000 ms, or MOEWAY_TIMEOUT_MS.
MOEWAY_API int64_t moeway_default_timeout_ms(void);

// The version of the library that is running, for example "0.1.0".
MOEWAY_API const char* moeway_version(void);

// 1 if this build can have ranks on CUDA devices (MOEWAY_CUDA), 0 if not. Says nothing of the machine: where it has no
// GPU, making a communicator with device_type CUDA fails with MOEWAY_UNAVAILABLE.
MOEWAY_API int32_t moeway_has_cuda(void);

// ---- Tensors

typedef enum moeway_dtype MOEWAY_ENUM_TYPE {
  MOEWAY_BF16 = 0,
  MOEWAY_F16 = 1,
  MOEWAY_F32 = 2,
  MOEWAY_F8_E4M3 = 3,
  MOEWAY_UE8M0 = 4,  // One byte: a power of two, as a scale.
  MOEWAY_BYTES = 5,  // Opaque; an element is one byte.
  MOEWAY_I32 = 6,
  MOEWAY_I64 = 7
} moeway_dtype;

typedef enum moeway_device_type MOEWAY_ENUM_TYPE { MOEWAY_CPU = 0, MOEWAY_CUDA = 1 } moeway_device_type;

// A view of the caller's memory. Element (i, j, k) lies at data + (i * strides[0] + j * strides[1] + k * strides[2])
// elements. Strides of dimensions with fewer than two elements do not matter. `data` may be null where the tensor has
// no elements.
typedef struct moeway_tensor {
  void* data;
  moeway_dtype dtype;
  moeway_device_type device_type;
  int32_t device_index;
  int32_t ndim;        // 1 to 3
  int64_t shape[3];    // elements
  int64_t strides[3];  // elements
} moeway_tensor;

// Bytes of one element; 0 for a value that is no dtype.
MOEWAY_API int64_t moeway_dtype_bytes(moeway_dtype dtype);
MOEWAY_API const char* moeway_dtype_name(moeway_dtype dtype);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MOEWAY_C_API_TYPES_H_
