// What ranks as processes tell each other in a test without the library: plain memory that forks share.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>
#include <type_traits>

namespace moeway::multi_rank {

// A T, all zeros at first, in memory that is the same for this process and for the ranks that it starts.
template <class T>
class Shared {
 public:
  static_assert(std::is_trivially_destructible_v<T>);
  Shared() {
    void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    value_ = new (memory) T{};
  }
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

inline int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// False if it has not come true in a minute.
inline bool wait_until(const std::function<bool()>& condition) {
  for (const int64_t end = now_ms() + 60000; now_ms() < end; sleep_ms(1))
    if (condition()) return true;
  return false;
}

}  // namespace moeway::multi_rank
