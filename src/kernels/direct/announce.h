// The first half of what dispatch sends (docs/protocols/direct.md): every rank tells every rank how many rows it sends to
// each expert there, and announces each token by a header. It waits for nothing.
#pragma once

#include <cstdint>

#include "kernels/direct/dispatch_args.h"
#include "kernels/direct/dispatch_scratch.h"
#include "layout/experts.h"

namespace moeway::kernels::direct {

template <class Team, class Peers>
class Announcer {
 public:
  // `own_direct`: own tokens go to their rows in the same launch, so that they need no header.
  MOEWAY_FN Announcer(const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                      const DispatchScratch& scratch, bool own_direct)
      : team_(team),
        args_(args),
        round_(args.round),
        shape_(args.round.shape()),
        peers_(peers),
        epoch_(epoch),
        scratch_(scratch),
        owner_(shape_.experts),
        bits_(shape_),
        own_direct_(own_direct) {}

  // `share` of this team; the last one also tells the counts.
  MOEWAY_FN void run(const Share& share, bool last) const {
    const int32_t topk = shape_.topk;
    if (last) release_credit();
    team_.lanes(shape_.experts.num_experts, [&](int32_t e) { scratch_.rows[e] = 0; });
    team_.lanes(shape_.num_ranks(), [&](int32_t r) { scratch_.slots[r] = 0; });
    team_.sync();
    if (share.begin < share.end || last) count_tokens(share.begin);
    const int64_t batch = topk > kBatchRoutes ? 1 : kBatchRoutes / topk;
    for (int64_t begin = share.begin; begin < share.end; begin += batch) {
      const int64_t num_tokens = share.end - begin < batch ? share.end - begin : batch;
      announce(begin, static_cast<int32_t>(num_tokens) * topk);
    }
    team_.sync();
    if (last) send_counts();
  }

 private:
  // Adds the routes of the tokens below `end`. A lane takes whole tokens, so that it knows where each has been.
  MOEWAY_FN void count_tokens(int64_t end) const {
    team_.lanes(static_cast<int32_t>(end), [&](int32_t token) {
      uint64_t seen = 0;  // Ranks; of more than 64 the routes before are asked.
      for (int32_t k = 0; k < shape_.topk; ++k) {
        const int32_t expert = args_.expert(token, k);
        if (expert < 0) continue;
        team_.count_into(&scratch_.rows[expert], 1);
        const int32_t dst = owner_(expert);
        if (shape_.num_ranks() > 64) {
          if (goes_before(token, k, dst)) continue;
        } else {
          if (seen >> dst & 1) continue;
          seen |= uint64_t{1} << dst;
        }
        team_.count_into(&scratch_.slots[dst], 1);
      }
    });
  }
  // Whether a route of the token before `k` goes to `dst`. A repeated expert does not matter here: where it came first,
  // it went to the same rank.
  MOEWAY_FN bool goes_before(int64_t token, int32_t k, int32_t dst) const {
    for (int32_t j = 0; j < k; ++j) {
      const int32_t other = args_.named_expert(token, j);
      if (other >= 0 && owner_(other) == dst) return true;
    }
    return false;
  }

  // The routes of the tokens from `begin` on, whole tokens; then they count as before.
  MOEWAY_FN void announce(int64_t begin, int32_t num_routes) const {
    const auto topk = static_cast<uint32_t>(shape_.topk);
    const auto k_of = [&](int32_t i) { return static_cast<int32_t>(static_cast<uint32_t>(i) % topk); };
    team_.lanes(num_routes, [&](int32_t i) {
      const int64_t token = begin + static_cast<int64_t>(static_cast<uint32_t>(i) / topk);
      const int64_t id = args_.topk_idx.at(token, k_of(i));
      const bool known = id >= 0 && id < shape_.experts.num_experts;
      scratch_.named[i] = known ? static_cast<int32_t>(id) : -1;
      if (!known && id != -1) report(token, k_of(i));
    });
    team_.sync();
    team_.lanes(num_routes, [&](int32_t i) {
      const int32_t expert = scratch_.named[i], dst = expert < 0 ? -1 : owner_(expert);
      bool first = dst >= 0, repeated = false;
      for (int32_t j = i - k_of(i); j < i; ++j) {
        const int32_t other = scratch_.named[j];
        first = first && !(other >= 0 && owner_(other) == dst);
        repeated = repeated || other == expert;
      }
      repeated = repeated && args_.distinct_experts && expert >= 0;
      if (repeated) report(begin + (i - k_of(i)) / shape_.topk, k_of(i));
      scratch_.experts[i] = repeated ? -1 : expert;
      scratch_.first_to[i] = first ? dst : -1;
    });
    team_.sync();
    team_.lanes(num_routes, [&](int32_t i) {
      announce_route(begin + static_cast<int64_t>(static_cast<uint32_t>(i) / topk), i, k_of(i));
    });
    team_.sync();
    team_.lanes(num_routes, [&](int32_t i) {
      if (scratch_.experts[i] >= 0) team_.count_into(&scratch_.rows[scratch_.experts[i]], 1);
      if (scratch_.first_to[i] >= 0) team_.count_into(&scratch_.slots[scratch_.first_to[i]], 1);
    });
    team_.sync();
  }
  // Relaxed: the host reads it after the launch.
  MOEWAY_FN void report(int64_t token, int64_t k) const {
    exec::min_relaxed<exec::Scope::kDevice>(args_.bad_route, static_cast<uint64_t>(token * shape_.topk + k));
  }

  // What the token's destination must know of route i of the batch; with the first route to a rank the token's head.
  MOEWAY_FN void announce_route(int64_t token, int32_t i, int32_t k) const {
    const int parity = parity_of(epoch_);
    const int32_t expert = scratch_.experts[i], first = i - k;  // `first`: the token's first route in the batch.
    round_.template at<int32_t>(round_.workspace.topk_idx(parity, token))[k] = expert;
    if (k == 0) keep_own(token, first);
    if (expert < 0) return;
    const int32_t dst = owner_(expert);
    uint32_t position = scratch_.rows[expert], slot = scratch_.slots[dst];
    for (int32_t j = 0; j < first; ++j) {
      position += scratch_.experts[j] == expert;
      slot += scratch_.first_to[j] == dst;
    }
    int32_t entry = 0, num_routes = 0, result_index = 0;
    for (int32_t j = first; j < first + shape_.topk; ++j) {
      const int32_t other = scratch_.experts[j], first_to = scratch_.first_to[j];
      const bool same_rank = other >= 0 && owner_(other) == dst;
      position += j < i && other == expert;
      entry += j < i && same_rank;
      num_routes += same_rank;
      result_index += first_to >= 0 && first_to < dst;
    }
    const bool weighted = args_.topk_weights.data != nullptr;
    const float weight = weighted ? *reinterpret_cast<const float*>(args_.topk_weights.at(token, k)) : 0.0f;
    const int32_t local_expert = expert - shape_.experts.first(dst);
    if (own_direct_ && dst == round_.rank) {
      auto* memory = round_.template at<std::byte>(round_.workspace.received(parity, dst, token));
      // The row counts from this rank's first of the expert until the counts are known.
      auto* places = reinterpret_cast<layout::RowPlace*>(memory + sizeof(layout::ReceivedToken));
      places[entry] = {position, weight, static_cast<uint16_t>(local_expert), static_cast<uint16_t>(k)};
      if (entry == 0) {
        *reinterpret_cast<layout::ReceivedToken*>(memory) = {static_cast<int32_t>(token), result_index, num_routes, 0};
      }
      return;
    }
    auto* header = reinterpret_cast<exec::Unit*>(peers_.heap(dst) + round_.heap.header(parity, round_.rank, slot));
    exec::store_tagged(header + 1 + entry, bits_.pack({local_expert, k, position, weight}, epoch_));
    if (entry != 0) return;
    exec::store_tagged(header,
                       layout::TokenHead::pack({static_cast<int32_t>(token), static_cast<uint16_t>(result_index),
                                                static_cast<uint16_t>(num_routes)},
                                               epoch_));
  }
  // What the token will get back.
  MOEWAY_FN void keep_own(int64_t token, int32_t first) const {
    layout::OwnToken own{0, -1};
    int32_t before = 0;
    for (int32_t j = first; j < first + shape_.topk; ++j) {
      const int32_t first_to = scratch_.first_to[j];
      own.num_results += first_to >= 0;
      before += first_to >= 0 && first_to < round_.rank;
      if (first_to == round_.rank) own.own_index = 0;
    }
    if (own.own_index == 0) own.own_index = before;
    *round_.template at<layout::OwnToken>(round_.workspace.own(parity_of(epoch_), token)) = own;
  }

  // Lets every rank write this rank's regions of the next epoch again.
  MOEWAY_FN void release_credit() const {
    team_.lanes(shape_.num_ranks(), [&](int32_t dst) {
      // Release; pairs with the acquire in recv_credit(): all that this rank has read and written in earlier launches
      // comes before it.
      exec::store_release<exec::Scope::kSystem>(&counts(dst)->credit, epoch_);
    });
  }
  // Tells every rank how much comes from here, be it nothing.
  MOEWAY_FN void send_counts() const {
    uint32_t num_tokens = 0, num_routes = 0;
    team_.lanes(shape_.num_ranks(), [&](int32_t dst) {
      // Relaxed: a count tells its epoch itself.
      exec::store_relaxed<exec::Scope::kSystem>(&counts(dst)->num_slots,
                                                exec::tagged_count(scratch_.slots[dst], epoch_));
      num_tokens += scratch_.slots[dst];
    });
    team_.lanes(shape_.experts.num_experts, [&](int32_t e) {
      const int32_t dst = owner_(e);
      auto* rows = reinterpret_cast<uint64_t*>(counts(dst) + 1);
      exec::store_relaxed<exec::Scope::kSystem>(&rows[e - shape_.experts.first(dst)],
                                                exec::tagged_count(scratch_.rows[e], epoch_));  // Relaxed: as above.
      num_routes += scratch_.rows[e];
    });
    team_.add(&round_.counters()->tokens_sent, num_tokens);
    team_.add(&round_.counters()->routes_sent, num_routes);
  }
  MOEWAY_FN layout::CountsHead* counts(int32_t dst) const {
    return reinterpret_cast<layout::CountsHead*>(peers_.heap(dst) + round_.heap.counts(parity_of(epoch_), round_.rank));
  }

  const Team& team_;
  const DispatchArgs& args_;
  const Round& round_;
  const layout::Shape& shape_;
  const Peers& peers_;
  const uint64_t epoch_;
  const DispatchScratch& scratch_;
  const layout::Owners owner_;
  const layout::RouteBits bits_;
  const bool own_direct_;
};

}  // namespace moeway::kernels::direct
