// Fibers: functions that take turns on one thread, each on a stack of its own.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/function_ref.h"

namespace moeway::exec {

// Runs `count` bodies to their end, one at a time, round robin; a fiber gives up its turn only in hand_over(). Stacks
// are taken once.
class FiberPool {
 public:
  explicit FiberPool(int count);
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  // body(i) for every fiber i; returns when all have returned. `body` must not throw. Any thread may call it, one at a
  // time.
  void run(FunctionRef<void(int)> body);
  // From within a fiber: lets the next one that has not ended go on.
  void hand_over();
  int count() const { return static_cast<int>(fibers_.size()); }
  int num_running() const { return num_running_; }

 private:
  // Memory whose lowest page cannot be touched: an overflow ends the process instead of writing into a neighbour.
  class Stack {
   public:
    Stack() = default;
    explicit Stack(size_t bytes);
    Stack(Stack&& other) noexcept;
    Stack& operator=(Stack&& other) noexcept;
    ~Stack();
    std::byte* data() const { return memory_ + guard_bytes_; }
    size_t bytes() const { return bytes_ - guard_bytes_; }

   private:
    std::byte* memory_ = nullptr;
    size_t bytes_ = 0;
    size_t guard_bytes_ = 0;
  };
  struct Fiber {
    ucontext_t context{};
    Stack stack;
    bool ended = false;
    void* sanitizer_stack = nullptr;  // AddressSanitizer's, while the fiber is not running.
    void* sanitizer_fiber = nullptr;  // ThreadSanitizer's.
  };
  static void enter(unsigned pool_high, unsigned pool_low, unsigned index);
  void switch_to(Fiber& from, Fiber& to);
  void arrived(Fiber& self);
  Fiber& next_after(int index);

  std::vector<Fiber> fibers_;
  Fiber caller_;
  const void* caller_stack_ = nullptr;  // AddressSanitizer's bounds of the calling thread's stack.
  size_t caller_stack_bytes_ = 0;
  const FunctionRef<void(int)>* body_ = nullptr;
  bool left_caller_ = false;  // Nobody has arrived since run() left the calling thread's stack.
  int current_ = 0;
  int num_running_ = 0;
};

}  // namespace moeway::exec
