// Loads and stores over a bad network: a rank of direct_job.h is given, in place of each peer's heap, a heap of the
// same layout that belongs to the link alone. What it writes there is found, cut into messages and written to the
// peer's true heap later, each store by itself, in another order, as far as load_store allows that
// (faulty_network.h). A receiver reads its own heap, as ever.
//
// Nothing here is more than memory may do: what carries its epoch or tells by itself travels alone; data with a signal
// behind it goes, in pieces and in any order, before that signal; a signal is released.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "exec/unit.h"
#include "kernels/direct_job.h"
#include "kernels/faulty_network.h"
#include "layout/heap_layout.h"

namespace kernel_tests {

// What one rank writes to another.
class Link {
 public:
  Link(const moeway::layout::HeapLayout& layout, int src, int dst, std::byte* to, FaultyNetwork& network, uint64_t seed)
      : layout_(layout),
        src_(src),
        dst_(dst),
        to_(to),
        network_(network),
        random_(seed),
        from_(static_cast<size_t>(layout.bytes() / 16)),
        seen_(static_cast<size_t>(layout.bytes() / 8)) {
    for (const moeway::layout::Range& range : layout_.self_validating())
      std::memset(from() + range.begin, 0xff, static_cast<size_t>(range.bytes));
  }

  std::byte* from() { return reinterpret_cast<std::byte*>(from_.data()); }

  // Posts what has been written since the last time.
  void collect() {
    for (int parity = 0; parity < moeway::layout::kEpochs; ++parity) {
      collect_counts(parity);
      collect_headers(parity);
      if (!layout_.shape.payload_tells()) collect_payload(parity);
      if (!layout_.shape.results_tell()) collect_results(parity);
    }
    const auto ranges = layout_.self_validating();
    collect_words(What::kPayload, ranges[0]);
    collect_words(What::kResult, ranges[1]);
  }

 private:
  struct alignas(16) Line {
    std::byte bytes[16];
  };
  static constexpr auto kSystem = moeway::exec::Scope::kSystem;

  template <class T>
  T* at(int64_t offset) {
    return reinterpret_cast<T*>(from() + offset);
  }
  template <class T>
  T* there(int64_t offset) const {
    return reinterpret_cast<T*>(to_ + offset);
  }
  // The word as it was when it was last posted.
  uint64_t& seen(int64_t offset) { return seen_[static_cast<size_t>(offset / 8)]; }

  // A signal: acquired here, so that what it covers may be read, and released there.
  void collect_signal(What what, int64_t offset, std::vector<moeway::layout::Range> covers) {
    // Acquire; pairs with the sender's release of the signal.
    const uint64_t value = moeway::exec::load_acquire<kSystem>(at<uint64_t>(offset));
    if (value == seen(offset)) return;
    seen(offset) = value;
    std::vector<std::pair<int64_t, std::vector<std::byte>>> pieces;
    for (const moeway::layout::Range& range : covers) {
      for (int64_t begin = 0; begin < range.bytes;) {
        const int64_t bytes = std::min(random_.between(1, 40), range.bytes - begin);
        const std::byte* data = from() + range.begin + begin;
        const int times = network_.treatment().rewrite && random_.chance(25) ? 2 : 1;
        for (int i = 0; i < times; ++i)
          pieces.emplace_back(range.begin + begin, std::vector<std::byte>(data, data + bytes));
        begin += bytes;
      }
    }
    for (size_t i = pieces.size(); i > 1; --i)
      std::swap(pieces[i - 1], pieces[static_cast<size_t>(random_.between(0, static_cast<int64_t>(i) - 1))]);
    network_.post(what, src_, dst_, [this, offset, value, pieces = std::move(pieces)] {
      for (const auto& [to, bytes] : pieces) std::memcpy(there<std::byte>(to), bytes.data(), bytes.size());
      // Release; pairs with the receiver's acquire of the signal.
      moeway::exec::store_release<kSystem>(there<uint64_t>(offset), value);
    });
  }

  void collect_counts(int parity) {
    const int64_t head = layout_.counts(parity, src_);
    collect_signal(What::kCredit, head + static_cast<int64_t>(offsetof(moeway::layout::CountsHead, credit)), {});
    const int64_t end = head + static_cast<int64_t>(sizeof(moeway::layout::CountsHead)) +
                        int64_t{8} * layout_.shape.experts.max_local();
    int64_t offset = head + static_cast<int64_t>(offsetof(moeway::layout::CountsHead, num_slots));
    for (; offset < end; offset += 8) {
      // Relaxed: a count tells its epoch itself.
      const uint64_t word = moeway::exec::load_relaxed<kSystem>(at<uint64_t>(offset));
      if (word == seen(offset)) continue;
      seen(offset) = word;
      network_.post(What::kCounts, src_, dst_, [this, offset, word] {
        moeway::exec::store_relaxed<kSystem>(there<uint64_t>(offset), word);  // Relaxed: as above.
      });
    }
  }

  void collect_headers(int parity) {
    const int64_t units = layout_.header_bytes / 16;
    for (int64_t i = 0; i < layout_.max_share; ++i) {
      for (int64_t u = 0; u < units; ++u) {
        const int64_t offset = layout_.header(parity, src_, i) + 16 * u;
        const moeway::exec::Unit unit = moeway::exec::load_tagged(at<moeway::exec::Unit>(offset));
        if (tag_of(unit) == seen(offset)) continue;
        seen(offset) = tag_of(unit);
        network_.post(What::kHeader, src_, dst_,
                      [this, offset, unit] { moeway::exec::store_tagged(there<moeway::exec::Unit>(offset), unit); });
      }
    }
  }

  void collect_payload(int parity) {
    const int group = layout_.replicas.group(src_);
    for (int64_t token = 0; token < layout_.shape.max_tokens; ++token) {
      collect_signal(What::kPayload, layout_.payload_signal(parity, group, token),
                     {{layout_.payload(parity, group, token), layout_.payload_bytes}});
    }
  }

  void collect_results(int parity) {
    for (int64_t token = 0; token < layout_.shape.max_tokens; ++token) {
      for (int32_t q = 0; q < layout_.shape.results_per_token(); ++q) {
        // On the host the signal of a result's first slice is for all of it.
        collect_signal(What::kResult, layout_.result_signal(parity, token, q, 0),
                       {{layout_.result(parity, token, q), layout_.result_bytes}});
      }
    }
  }

  // Words that tell by themselves that they have come: the link takes them away as a receiver would, so that the next
  // ones show. Before it delivers them: the sender may write again once its peer has them.
  void collect_words(What what, const moeway::layout::Range& range) {
    constexpr uint64_t kNothing = ~uint64_t{0};
    for (int64_t offset = range.begin; offset < range.begin + range.bytes;) {
      const int64_t first = offset;
      std::vector<uint64_t> words;
      const auto most = static_cast<size_t>(random_.between(1, 16));
      for (; offset < range.begin + range.bytes && words.size() < most; offset += 8) {
        // Relaxed: the word tells by itself.
        const uint64_t word = moeway::exec::load_relaxed<kSystem>(at<uint64_t>(offset));
        if (static_cast<uint32_t>(word) == moeway::exec::kAllOnes ||
            static_cast<uint32_t>(word >> 32) == moeway::exec::kAllOnes) {
          break;
        }
        moeway::exec::store_relaxed<kSystem>(at<uint64_t>(offset), kNothing);  // Relaxed: the next write is ordered
        words.push_back(word);                                                 // behind it by the peer's credit.
      }
      if (words.empty()) {
        offset += 8;
        continue;
      }
      network_.post(what, src_, dst_, [this, first, words = std::move(words)] {
        for (size_t i = words.size(); i-- > 0;)  // Relaxed: as above.
          moeway::exec::store_relaxed<kSystem>(there<uint64_t>(first + 8 * static_cast<int64_t>(i)), words[i]);
      });
    }
  }

  const moeway::layout::HeapLayout layout_;
  const int src_, dst_;
  std::byte* const to_;
  FaultyNetwork& network_;
  reference::Random random_;
  std::vector<Line> from_;
  std::vector<uint64_t> seen_;
};

// All links between the ranks of a job, and the thread that runs them. The ranks must be at rest when it is destroyed.
class FaultyLinks {
 public:
  FaultyLinks(std::vector<std::unique_ptr<Rank>>& ranks, const Treatment& treatment) : network_(treatment) {
    std::vector<std::vector<std::byte*>> heaps(ranks.size());
    for (size_t src = 0; src < ranks.size(); ++src) {
      for (size_t dst = 0; dst < ranks.size(); ++dst) {
        heaps[src].push_back(ranks[dst]->heap());
        if (dst == src) continue;
        links_.push_back(std::make_unique<Link>(moeway::layout::HeapLayout{ranks[src]->plan().shape},
                                                static_cast<int>(src), static_cast<int>(dst), ranks[dst]->heap(),
                                                network_, reference::hash(treatment.seed, src, dst)));
        heaps[src].back() = links_.back()->from();
      }
    }
    for (size_t src = 0; src < ranks.size(); ++src) ranks[src]->set_peers(heaps[src]);
    thread_ = std::thread([this] { run(); });
  }
  ~FaultyLinks() {
    stop_ = true;
    thread_.join();
  }
  FaultyLinks(const FaultyLinks&) = delete;
  FaultyLinks& operator=(const FaultyLinks&) = delete;

  FaultyNetwork& network() { return network_; }

 private:
  void run() {
    while (!stop_) {
      for (const auto& link : links_) link->collect();
      network_.deliver_due();
      std::this_thread::yield();
    }
  }

  FaultyNetwork network_;
  std::vector<std::unique_ptr<Link>> links_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace kernel_tests
