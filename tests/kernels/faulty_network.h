// A network that treats messages as badly as a transport may: late, in another order, twice, and not at all. Whoever
// stands in for a transport cuts what a rank writes into messages and posts them; what a message may be subject to
// follows from what that transport promises:
//
//   load_store   A store takes effect once, at any later moment, in any order with other stores; a release comes after
//                every store before it. Nothing is delivered twice. A store that never comes is a peer that has stopped.
//   put, signal  (NVSHMEM, libfabric) A put lands in pieces, in any order, maybe more than once, before its own signal
//                and in no order with other puts; a signal only grows. What never comes is a peer or a link that is gone.
//
// So what this layer does to a message is the poster's choice (Treatment), and everything else is drawn at random from
// a seed. Messages are delivered by whoever calls deliver_due().
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "reference/random.h"

namespace kernel_tests {

// What a message carries, as far as tests tell messages apart.
enum class What { kCredit, kCounts, kHeader, kPayload, kResult };

struct Treatment {
  uint64_t seed = 1;
  int max_delay_us = 400;  // Of every third message; the others go at once.
  bool reorder = true;     // A message may overtake an earlier one of its link.
  bool rewrite = false;    // Data with a signal behind it may land twice before that: as puts may, and stores may not.
};

class FaultyNetwork {
 public:
  explicit FaultyNetwork(const Treatment& treatment)
      : treatment_(treatment), random_(treatment.seed), order_(treatment.seed + 1) {}

  // `deliver` is run once, later, by deliver_due().
  void post(What what, int src, int dst, std::function<void()> deliver) {
    const std::lock_guard lock(mutex_);
    if (drop_ && drop_->what == what && drop_->src == src && drop_->dst == dst) {
      drop_.reset();
      ++num_dropped_;
      return;
    }
    const auto delay = random_.chance(33) ? random_.between(1, treatment_.max_delay_us) : 0;
    under_way_.push_back({src, dst, Clock::now() + std::chrono::microseconds(delay), next_++, std::move(deliver)});
  }

  // The next message of that kind on that link is never delivered.
  void drop_next(What what, int src, int dst) {
    const std::lock_guard lock(mutex_);
    drop_ = Drop{what, src, dst};
  }

  // Delivers what is due, in an order of its own. By one thread.
  void deliver_due() {
    std::vector<Message> due = take_due();
    for (size_t i = due.size(); treatment_.reorder && i > 1; --i) {
      std::swap(due[i - 1], due[static_cast<size_t>(order_.between(0, static_cast<int64_t>(i) - 1))]);
    }
    for (Message& message : due) {
      num_overtaken_ += message.number < latest_;
      latest_ = std::max(latest_, message.number);
      message.deliver();
    }
  }

  const Treatment& treatment() const { return treatment_; }
  int64_t num_dropped() const { return num_dropped_; }
  // Messages that came after a later one.
  int64_t num_overtaken() const { return num_overtaken_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Message {
    int src, dst;
    Clock::time_point due;
    uint64_t number;
    std::function<void()> deliver;
  };
  struct Drop {
    What what;
    int src, dst;
  };

  std::vector<Message> take_due() {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    std::vector<Message> due, later;
    for (Message& message : under_way_) {
      const auto on_link = [&](const Message& other) { return other.src == message.src && other.dst == message.dst; };
      const bool behind = !treatment_.reorder && std::any_of(later.begin(), later.end(), on_link);
      (message.due <= now && !behind ? due : later).push_back(std::move(message));
    }
    under_way_ = std::move(later);
    return due;
  }

  const Treatment treatment_;
  std::mutex mutex_;
  reference::Random random_;
  reference::Random order_;         // Of deliver_due() alone.
  std::vector<Message> under_way_;  // In the order in which they were posted.
  std::optional<Drop> drop_;
  uint64_t next_ = 0;
  uint64_t latest_ = 0;  // Of those delivered.
  std::atomic<int64_t> num_dropped_{0}, num_overtaken_{0};
};

}  // namespace kernel_tests
