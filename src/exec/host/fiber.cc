#include "exec/host/fiber.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace moeway::exec {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStackBytes = 256 * 1024;  // Instrumented frames are several times as large.
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

}  // namespace

FiberPool::Stack::Stack(size_t bytes) : guard_bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
  bytes_ = guard_bytes_ + (bytes + guard_bytes_ - 1) / guard_bytes_ * guard_bytes_;
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  if (mprotect(memory_, guard_bytes_, PROT_NONE) != 0) {  // As many mappings as the process may have.
    munmap(memory_, bytes_);
    throw std::bad_alloc();
  }
}

FiberPool::Stack::Stack(Stack&& other) noexcept { *this = std::move(other); }

FiberPool::Stack& FiberPool::Stack::operator=(Stack&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(guard_bytes_, other.guard_bytes_);
  return *this;
}

FiberPool::Stack::~Stack() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

FiberPool::FiberPool(int count) : fibers_(static_cast<size_t>(count)) {
  for (int i = 0; i < count; ++i) {
    Fiber& fiber = fibers_[static_cast<size_t>(i)];
    fiber.stack = Stack(kStackBytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack = {fiber.stack.data(), 0, fiber.stack.bytes()};
    fiber.context.uc_link = nullptr;
    const auto address = reinterpret_cast<uint64_t>(this);  // makecontext passes ints only.
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&FiberPool::enter), 3,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address), static_cast<unsigned>(i));
#if defined(__SANITIZE_THREAD__)
    fiber.sanitizer_fiber = __tsan_create_fiber(0);
#endif
  }
}

FiberPool::~FiberPool() {
#if defined(__SANITIZE_THREAD__)
  for (Fiber& fiber : fibers_) __tsan_destroy_fiber(fiber.sanitizer_fiber);
#endif
}

void FiberPool::run(FunctionRef<void(int)> body) {
  if (count() == 0) return;
  // A switch also switches signal masks: fibers run with the one that the calling thread has now.
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  body_ = &body;
  current_ = 0;
  num_running_ = count();
  for (Fiber& fiber : fibers_) {
    fiber.ended = false;
    fiber.context.uc_sigmask = mask;
  }
#if defined(__SANITIZE_THREAD__)
  caller_.sanitizer_fiber = __tsan_get_current_fiber();
#endif
  left_caller_ = true;
  switch_to(caller_, fibers_[0]);
}

// A fiber runs one body after another and never returns: between runs it rests in its last switch_to.
void FiberPool::enter(unsigned pool_high, unsigned pool_low, unsigned index) {
  auto* pool = reinterpret_cast<FiberPool*>(static_cast<uint64_t>(pool_high) << 32 | pool_low);
  Fiber& self = pool->fibers_[index];
  pool->arrived(self);
  for (;;) {
    (*pool->body_)(static_cast<int>(index));
    self.ended = true;
    --pool->num_running_;
    pool->switch_to(self, pool->num_running_ > 0 ? pool->next_after(static_cast<int>(index)) : pool->caller_);
  }
}

void FiberPool::hand_over() {
  Fiber& self = fibers_[static_cast<size_t>(current_)];
  Fiber& next = next_after(current_);
  if (&next != &self) switch_to(self, next);
}

// Requires a fiber that has not ended; makes it the current one.
FiberPool::Fiber& FiberPool::next_after(int index) {
  do {
    index = index + 1 == count() ? 0 : index + 1;
  } while (fibers_[static_cast<size_t>(index)].ended);
  current_ = index;
  return fibers_[static_cast<size_t>(index)];
}

void FiberPool::switch_to(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
  const bool to_caller = &to == &caller_;
  __sanitizer_start_switch_fiber(&from.sanitizer_stack, to_caller ? caller_stack_ : to.stack.data(),
                                 to_caller ? caller_stack_bytes_ : to.stack.bytes());
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.sanitizer_fiber, 0);
#endif
  swapcontext(&from.context, &to.context);
  arrived(from);
}

// The first thing that a fiber does when its turn comes.
void FiberPool::arrived([[maybe_unused]] Fiber& self) {
#if defined(__SANITIZE_ADDRESS__)
  const void* from = nullptr;
  size_t from_bytes = 0;
  __sanitizer_finish_switch_fiber(self.sanitizer_stack, &from, &from_bytes);
  if (left_caller_) {  // Where to go back to: each run may be in another thread.
    caller_stack_ = from;
    caller_stack_bytes_ = from_bytes;
  }
#endif
  left_caller_ = false;
}

}  // namespace moeway::exec
