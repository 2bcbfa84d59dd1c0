// The counts of all sources (docs/protocols/direct.md): they give every row its place.
#pragma once

#include <cstdint>

#include "kernels/direct/dispatch_args.h"
#include "kernels/direct/dispatch_scratch.h"

namespace moeway::kernels::direct {

MOEWAY_FN exec::Failure corrupt(exec::Awaited what, int32_t src, int64_t index, int64_t limit, int64_t seen) {
  return {exec::FailureKind::kCorrupt, {what, src, index}, static_cast<uint64_t>(limit), static_cast<uint64_t>(seen)};
}

// There is no room for an expert's rows: a failure, unless they are dropped. `rows`: of it, or (packed) up to its last one.
MOEWAY_FN exec::Failure overflow(int64_t expert, int64_t limit, int64_t rows) {
  return {exec::FailureKind::kOverflow,
          {exec::Awaited::kCounts, -1, expert},
          static_cast<uint64_t>(limit),
          static_cast<uint64_t>(rows)};
}

// Rows of an expert up to where the next one may start. A long division: not in the way of those who need none.
MOEWAY_RARE int64_t padded_rows(int64_t rows, int64_t alignment) { return layout::round_up(rows, alignment); }

template <class Config, class Team, class Peers>
class Counts {
 public:
  MOEWAY_FN Counts(Config, const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                   const DispatchScratch& scratch)
      : team_(team),
        args_(args),
        round_(args.round),
        shape_(args.round.shape()),
        heap_(peers.heap(args.round.rank)),
        epoch_(epoch),
        scratch_(scratch),
        num_local_(args.round.heap.owners.count(args.round.rank)) {}

  // Waits for the counts of all sources and works out where rows belong. False if the launch must end. What it leaves in
  // scratch may be read after the team's next barrier.
  MOEWAY_FN bool recv() const {
    // A lane takes an expert, and one a source's number of tokens too. Lanes may differ in what they find, so all of them
    // wait for everything.
    const int32_t num_ranks = shape_.num_ranks();
    bool good = true;
    bool come = team_.poll_each(
        num_local_ > num_ranks ? num_local_ : num_ranks,
        [&](int32_t i) {
          const bool slots = i >= num_ranks || take_slots(i, &good);
          return (i >= num_local_ || take_rows(i, &good)) && slots;
        },
        [&](int32_t i) {
          if (i < num_ranks && !exec::has_tag(slots_word(i), epoch_)) return missing(i, slots_word(i));
          int32_t src = 0;
          while (src + 1 < num_ranks && exec::has_tag(rows_word(src, i), epoch_)) ++src;
          return missing(src, rows_word(src, i));
        });
    if (unusual<Config>(shape_.replicated())) come = come && recv_num_tokens(&good);
    if (shape_.rows != layout::Rows::kPacked) return come && good;
    if (!team_.all(come && good)) return false;
    return place_experts();
  }

  // Tells the caller and the later phases what has come. After a barrier behind recv().
  MOEWAY_FN void publish() const {
    uint32_t num_rows = 0, num_dropped = 0;
    team_.lanes(num_local_, [&](int32_t e) {
      args_.num_rows[e * args_.num_rows_stride] = static_cast<int32_t>(scratch_.num_rows[e]);
      num_rows += scratch_.num_rows[e];
      const uint32_t dropped = scratch_.num_arrived[e] - scratch_.num_rows[e];
      num_dropped += dropped;
      if (args_.num_dropped != nullptr) args_.num_dropped[e * args_.num_dropped_stride] = static_cast<int32_t>(dropped);
      if (args_.first_row == nullptr) return;
      const bool packed = shape_.rows == layout::Rows::kPacked;
      args_.first_row[e * args_.first_row_stride] = packed ? scratch_.first_row[e] : e * args_.expert_capacity;
    });
    auto* num_received = round_.template at<uint32_t>(round_.workspace.num_received(parity_of(epoch_), 0));
    team_.lanes(shape_.num_ranks(), [&](int32_t src) {
      num_received[src] = scratch_.num_slots[src];
      // Relaxed: the host only looks.
      exec::add_relaxed<exec::Scope::kDevice>(&round_.peer_counters(src)->tokens_received,
                                              uint64_t{scratch_.num_slots[src]});
    });
    team_.add(&round_.counters()->rows_received, num_rows);
    if (args_.drops) team_.add(&round_.counters()->rows_dropped, num_dropped);
  }

  // Waits until all sources have finished with their regions of the epoch before: those of the next epoch may then be
  // written. False if the launch must end.
  MOEWAY_FN bool recv_credit() const {
    const auto credit = [&](int32_t src) { return &counts(src)->credit; };
    return team_.poll_each(
        shape_.num_ranks(),
        // Acquire; pairs with release_credit(): makes visible that the source has read and written all of it.
        [&](int32_t src) { return exec::load_acquire<exec::Scope::kSystem>(credit(src)) == epoch_; },
        [&](int32_t src) {
          return exec::Missing{
              {exec::Awaited::kCounts, src, 0}, epoch_, exec::load_acquire<exec::Scope::kSystem>(credit(src))};
        });
  }

 private:
  MOEWAY_FN const layout::CountsHead* counts(int32_t src) const {
    return reinterpret_cast<const layout::CountsHead*>(heap_ + round_.heap.counts(parity_of(epoch_), src));
  }
  MOEWAY_FN uint64_t rows_word(int32_t src, int32_t expert) const {
    // Relaxed: a count tells its epoch itself.
    return exec::load_relaxed<exec::Scope::kSystem>(reinterpret_cast<const uint64_t*>(counts(src) + 1) + expert);
  }
  MOEWAY_FN uint64_t slots_word(int32_t src) const {
    return exec::load_relaxed<exec::Scope::kSystem>(&counts(src)->num_slots);  // Relaxed: as in rows_word().
  }
  MOEWAY_FN exec::Missing missing(int32_t src, uint64_t word) const {
    return {{exec::Awaited::kCounts, src, 0}, epoch_, exec::epoch_of(word, epoch_)};
  }

  // What a peer says is checked before it becomes an address, and is not read from its memory again after that.
  MOEWAY_FN bool take_slots(int32_t src, bool* good) const {
    const uint64_t word = slots_word(src);
    const auto num_slots = static_cast<uint32_t>(word);
    scratch_.num_slots[src] = num_slots;
    if (!exec::has_tag(word, epoch_)) return false;
    if (num_slots > static_cast<uint32_t>(round_.heap.max_share)) {
      team_.fail(corrupt(exec::Awaited::kCounts, src, 0, round_.heap.max_share, num_slots));
      *good = false;
    }
    return true;
  }
  MOEWAY_FN uint64_t tokens_word(int32_t src) const {
    return exec::load_relaxed<exec::Scope::kSystem>(&counts(src)->num_tokens);  // Relaxed: as in rows_word().
  }
  // With replicas: how many tokens each source's group has, by which its members have shared them out. All of a group must
  // have said the same.
  MOEWAY_FN bool recv_num_tokens(bool* good) const {
    return team_.poll_each(
        shape_.num_ranks(),
        [&](int32_t src) {
          const int32_t first = round_.heap.replicas.first_rank(src);
          const uint64_t word = tokens_word(src), of_first = tokens_word(first);
          const auto num_tokens = static_cast<uint32_t>(word), expected = static_cast<uint32_t>(of_first);
          scratch_.num_tokens[src] = num_tokens;
          if (!exec::has_tag(word, epoch_) || !exec::has_tag(of_first, epoch_)) return false;
          if (num_tokens > static_cast<uint32_t>(shape_.max_tokens)) {
            team_.fail(corrupt(exec::Awaited::kCounts, src, 0, shape_.max_tokens, num_tokens));
            *good = false;
          } else if (num_tokens != expected) {
            team_.fail(
                {exec::FailureKind::kReplicasDiffer, {exec::Awaited::kCounts, src, first}, expected, num_tokens});
            *good = false;
          }
          return true;
        },
        [&](int32_t src) {
          const int32_t first = round_.heap.replicas.first_rank(src);
          const int32_t late = exec::has_tag(tokens_word(src), epoch_) ? first : src;
          return missing(late, tokens_word(late));
        });
  }
  // An expert's rows from each source, one after the other.
  MOEWAY_FN bool take_rows(int32_t e, bool* good) const {
    constexpr int32_t kAtOnce = 4;  // Loads in flight together.
    const uint32_t per_token = args_.distinct_experts ? 1u : static_cast<uint32_t>(shape_.topk);
    const uint32_t most = static_cast<uint32_t>(round_.heap.max_share) * per_token;
    uint32_t sum = 0;
    bool come = true;
    MOEWAY_ROLL
    for (int32_t base = 0; base < shape_.num_ranks(); base += kAtOnce) {
      uint64_t words[kAtOnce];
      MOEWAY_UNROLL
      for (int32_t i = 0; i < kAtOnce; ++i) words[i] = base + i < shape_.num_ranks() ? rows_word(base + i, e) : 0;
      MOEWAY_UNROLL
      for (int32_t i = 0; i < kAtOnce; ++i) {
        if (base + i >= shape_.num_ranks()) break;
        come = come && exec::has_tag(words[i], epoch_);
        const auto count = static_cast<uint32_t>(words[i]);
        if (come && count > most) {
          team_.fail(corrupt(exec::Awaited::kCounts, base + i, 0, int64_t{most} + 1, count));
          *good = false;
        }
        scratch_.first_of[int64_t{base + i} * num_local_ + e] = sum;
        sum += count;
      }
    }
    // The shares of a group's members are not all as large as the largest.
    const int64_t most_of_all = int64_t{round_.heap.num_groups} * shape_.max_tokens * per_token;
    if (unusual<Config>(shape_.replicated() && come && sum > most_of_all)) {
      team_.fail(corrupt(exec::Awaited::kCounts, 0, 0, most_of_all + 1, sum));
      *good = false;
    }
    scratch_.num_arrived[e] = sum;
    scratch_.num_rows[e] = sum < args_.max_expert_rows ? sum : args_.max_expert_rows;
    if (come && sum > args_.max_expert_rows && !args_.drops && shape_.rows != layout::Rows::kPacked) {
      team_.fail(overflow(round_.heap.owners.first(round_.rank) + e, args_.max_expert_rows, sum));
      *good = false;
    }
    return come;
  }

  // packed: experts one after another, up to the last row that there is room for. Every lane adds up for itself: experts
  // of one rank are few. False if rows would have to be dropped that may not.
  MOEWAY_FN bool place_experts() const {
    bool fits = true;
    team_.lanes(num_local_,
                [&](int32_t e) { scratch_.padded_rows[e] = padded_rows(scratch_.num_rows[e], args_.alignment); });
    team_.sync();
    team_.lanes(num_local_, [&](int32_t e) {
      int64_t first = 0;
      MOEWAY_ROLL
      for (int32_t before = 0; before < e; ++before) first += scratch_.padded_rows[before];
      const int64_t room = args_.max_rows - first, arrived = scratch_.num_arrived[e];
      if (arrived > room) {
        // The first expert that does not fit tells.
        if (!args_.drops && room >= 0) {
          team_.fail(overflow(round_.heap.owners.first(round_.rank) + e, args_.max_rows, first + arrived));
        }
        fits = fits && args_.drops;
        scratch_.num_rows[e] = room < 0 ? 0 : static_cast<uint32_t>(room);
      }
      scratch_.first_row[e] = room < 0 ? args_.max_rows : first;
    });
    return fits;
  }

  const Team& team_;
  const DispatchArgs& args_;
  const Round& round_;
  const layout::Shape& shape_;
  std::byte* const heap_;
  const uint64_t epoch_;
  const DispatchScratch& scratch_;
  const int32_t num_local_;
};

}  // namespace moeway::kernels::direct
