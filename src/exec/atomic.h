// Atomic accesses with their order and scope in the name. Shared code has no fences: a signal's own release and acquire
// carry the order, which ThreadSanitizer understands and which is as cheap on a GPU (st.release.sys, ld.acquire.sys).
#pragma once

#include <cstdint>

#include "exec/compiler.h"

#if defined(__CUDACC__)
#include <cuda/atomic>
#else
#include <atomic>
#endif

namespace moeway::exec {

// Who takes part: threads of this rank's device, or of any rank as well.
enum class Scope { kDevice, kSystem };

namespace order {
#if defined(__CUDACC__)
inline constexpr auto kRelaxed = cuda::memory_order_relaxed;
inline constexpr auto kAcquire = cuda::memory_order_acquire;
inline constexpr auto kRelease = cuda::memory_order_release;
template <Scope S, class T>
using Ref = cuda::atomic_ref<T, S == Scope::kDevice ? cuda::thread_scope_device : cuda::thread_scope_system>;
#else
inline constexpr auto kRelaxed = std::memory_order_relaxed;
inline constexpr auto kAcquire = std::memory_order_acquire;
inline constexpr auto kRelease = std::memory_order_release;
template <Scope S, class T>
using Ref = std::atomic_ref<T>;
#endif
}  // namespace order

// `const` is taken off because an atomic_ref of a const type cannot be made in C++20; the object is never written
// through it.
template <Scope S, class T>
MOEWAY_FN T load_relaxed(const T* p) {
  return order::Ref<S, T>(*const_cast<T*>(p)).load(order::kRelaxed);
}
template <Scope S, class T>
MOEWAY_FN T load_acquire(const T* p) {
  return order::Ref<S, T>(*const_cast<T*>(p)).load(order::kAcquire);
}
template <Scope S, class T>
MOEWAY_FN void store_relaxed(T* p, T value) {
  order::Ref<S, T>(*p).store(value, order::kRelaxed);
}
template <Scope S, class T>
MOEWAY_FN void store_release(T* p, T value) {
  order::Ref<S, T>(*p).store(value, order::kRelease);
}
template <Scope S, class T>
MOEWAY_FN T add_relaxed(T* p, T value) {
  return order::Ref<S, T>(*p).fetch_add(value, order::kRelaxed);
}
// Keeps the smaller of *p and value.
template <Scope S, class T>
MOEWAY_FN void min_relaxed(T* p, T value) {
  order::Ref<S, T> ref(*p);
  T seen = ref.load(order::kRelaxed);
  while (value < seen && !ref.compare_exchange_weak(seen, value, order::kRelaxed, order::kRelaxed)) {
  }
}
// True for exactly one caller that finds *p at `from`; it has then become `to`.
template <Scope S, class T>
MOEWAY_FN bool claim_relaxed(T* p, T from, T to) {
  return order::Ref<S, T>(*p).compare_exchange_strong(from, to, order::kRelaxed, order::kRelaxed);
}

}  // namespace moeway::exec
