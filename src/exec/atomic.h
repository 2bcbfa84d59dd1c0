// Atomic accesses with their order and scope in the name. Shared code has no fences: a signal's own release and acquire
// carry the order, which ThreadSanitizer understands and which is as cheap on a GPU (st.release.sys, ld.acquire.sys).
#pragma once

#include <cstdint>

#include "exec/compiler.h"

#if defined(__CUDACC__)
#include <cuda/atomic>
#endif

namespace moeway::exec {

// Who takes part: threads of this rank's device, or of any rank as well.
enum class Scope { kDevice, kSystem };

// The host's accesses are the compiler's own, whose order is a constant. std::atomic_ref takes it as an argument: where a
// compiler does not inline that call every access is sequentially consistent, and ThreadSanitizer sees order that is
// not asked for.
#if defined(__CUDACC__)

template <Scope S, class T>
using Ref = cuda::atomic_ref<T, S == Scope::kDevice ? cuda::thread_scope_device : cuda::thread_scope_system>;

// `const` is taken off because an atomic_ref of a const type cannot be made in C++20; the object is never written
// through it.
template <Scope S, class T>
MOEWAY_FN T load_relaxed(const T* p) {
  return Ref<S, T>(*const_cast<T*>(p)).load(cuda::memory_order_relaxed);
}
template <Scope S, class T>
MOEWAY_FN T load_acquire(const T* p) {
  return Ref<S, T>(*const_cast<T*>(p)).load(cuda::memory_order_acquire);
}
template <Scope S, class T>
MOEWAY_FN void store_relaxed(T* p, T value) {
  Ref<S, T>(*p).store(value, cuda::memory_order_relaxed);
}
template <Scope S, class T>
MOEWAY_FN void store_release(T* p, T value) {
  Ref<S, T>(*p).store(value, cuda::memory_order_release);
}
template <Scope S, class T>
MOEWAY_FN T add_relaxed(T* p, T value) {
  return Ref<S, T>(*p).fetch_add(value, cuda::memory_order_relaxed);
}
// Replaces *p by `to` if it is *seen; else *seen becomes what it is.
template <Scope S, class T>
MOEWAY_FN bool exchange_relaxed(T* p, T* seen, T to) {
  return Ref<S, T>(*p).compare_exchange_strong(*seen, to, cuda::memory_order_relaxed, cuda::memory_order_relaxed);
}

#else

template <Scope S, class T>
MOEWAY_FN T load_relaxed(const T* p) {
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <Scope S, class T>
MOEWAY_FN T load_acquire(const T* p) {
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
template <Scope S, class T>
MOEWAY_FN void store_relaxed(T* p, T value) {
  __atomic_store_n(p, value, __ATOMIC_RELAXED);
}
template <Scope S, class T>
MOEWAY_FN void store_release(T* p, T value) {
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
template <Scope S, class T>
MOEWAY_FN T add_relaxed(T* p, T value) {
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
template <Scope S, class T>
MOEWAY_FN bool exchange_relaxed(T* p, T* seen, T to) {
  return __atomic_compare_exchange_n(p, seen, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

#endif

// Keeps the smaller of *p and value.
template <Scope S, class T>
MOEWAY_FN void min_relaxed(T* p, T value) {
  T seen = load_relaxed<S>(p);
  while (value < seen && !exchange_relaxed<S>(p, &seen, value)) {
  }
}
// Keeps the greater of *p and value; what *p was.
template <Scope S, class T>
MOEWAY_FN T max_relaxed(T* p, T value) {
  T seen = load_relaxed<S>(p);
  while (value > seen && !exchange_relaxed<S>(p, &seen, value)) {
  }
  return seen;
}
// True for exactly one caller that finds *p at `from`; it has then become `to`.
template <Scope S, class T>
MOEWAY_FN bool claim_relaxed(T* p, T from, T to) {
  return exchange_relaxed<S>(p, &from, to);
}

}  // namespace moeway::exec
