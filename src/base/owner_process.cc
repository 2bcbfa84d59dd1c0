#include "base/owner_process.h"

#include <pthread.h>

#include <atomic>

namespace moeway {
namespace {

std::atomic<uint32_t> forks{0};

// Relaxed: a fork starts with the one thread that has counted.
struct Counter {
  Counter() {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  }
};

}  // namespace

uint32_t num_forks() {
  static const Counter counter;  // There before the first object that asks.
  return forks.load(std::memory_order_relaxed);
}

}  // namespace moeway
