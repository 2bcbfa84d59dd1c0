// The first half of what dispatch sends (docs/protocols/direct.md): every rank tells every rank how many rows it sends to
// each expert there, and announces each token by a header. It waits for nothing.
#pragma once

#include <cstdint>

#include "kernels/direct/dispatch_args.h"
#include "kernels/direct/dispatch_scratch.h"

namespace moeway::kernels::direct {

template <class Peers>
MOEWAY_FN layout::CountsHead* counts_at(const Round& round, const Peers& peers, uint64_t epoch, int32_t dst) {
  return reinterpret_cast<layout::CountsHead*>(peers.heap(dst) + round.heap.counts(parity_of(epoch), round.rank));
}

// Lets every rank write this rank's regions of the next epoch again. In a team that has stored little before: a release
// waits for it.
template <class Team, class Peers>
MOEWAY_FN void release_credit(const Team& team, const Round& round, const Peers& peers, uint64_t epoch) {
  team.lanes(round.shape().num_ranks(), [&](int32_t dst) {
    // Release; pairs with the acquire in recv_credit(): all that this rank has read and written in earlier launches comes
    // before it.
    exec::store_release<exec::Scope::kSystem>(&counts_at(round, peers, epoch, dst)->credit, epoch);
  });
}

// Relaxed: the host reads it after the launch.
MOEWAY_RARE void report_route(const DispatchArgs* args, int64_t token, int64_t k) {
  exec::min_relaxed<exec::Scope::kDevice>(args->bad_route, static_cast<uint64_t>(token * args->round.shape().topk + k));
}

template <class Team>
MOEWAY_FN void clear_counters(const Team& team, const layout::Shape& shape, const DispatchScratch& scratch) {
  team.lanes(shape.experts.num_experts, [&](int32_t e) { scratch.rows[e] = 0; });
  team.lanes(shape.num_ranks(), [&](int32_t r) { scratch.slots[r] = 0; });
}

// What the last team has announced and counted, for the statistics.
template <class Team>
MOEWAY_FN void add_sent(const Team& team, const Round& round, const DispatchScratch& scratch) {
  uint32_t num_routes = 0;
  team.lanes(round.shape().num_ranks(), [&](int32_t dst) {
    // Relaxed: the host only looks.
    exec::add_relaxed<exec::Scope::kDevice>(&round.peer_counters(dst)->tokens_sent, uint64_t{scratch.slots[dst]});
  });
  team.lanes(round.shape().experts.num_experts, [&](int32_t e) { num_routes += scratch.rows[e]; });
  team.add(&round.counters()->routes_sent, num_routes);
}

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
        owners_(args.round.heap.owners),
        peers_(peers),
        epoch_(epoch),
        scratch_(scratch),
        own_direct_(own_direct) {}

  // `share` of this team; the last one also tells the counts. After clear_counters() and a barrier.
  MOEWAY_FN void run(const Share& share, bool last) const {
    if (share.begin < share.end || last) count_tokens(share.begin);
    team_.sync();
    // One warp keeps the counters from here on: it takes tokens in their order, so that it needs no barrier.
    team_.warps_in_turn([&](const auto& warp, int32_t turn, int32_t) {
      if (turn == 0) announce(warp, share);
    });
    if (!last) return;
    team_.sync();
    send_counts();
  }

 private:
  // Adds the routes of the tokens below `end`. A lane takes whole tokens: it knows where each has been, and works on several
  // of its routes at once.
  MOEWAY_FN void count_tokens(int64_t end) const {
    team_.lanes(static_cast<int32_t>(end), [&](int32_t token) {
      uint64_t seen = 0;  // Ranks; of more than 64 the routes before are asked.
      MOEWAY_ROLL
      for (int32_t base = 0; base < shape_.topk; base += kAtOnce) {
        IndexView::Raw ids[kAtOnce] = {};
        MOEWAY_UNROLL
        for (int32_t i = 0; i < kAtOnce; ++i) {
          if (base + i < shape_.topk) ids[i] = args_.topk_idx.read(token, base + i);
        }
        int32_t experts[kAtOnce];
        MOEWAY_UNROLL
        for (int32_t i = 0; i < kAtOnce; ++i) {
          const int32_t expert = base + i < shape_.topk ? args_.expert_of(args_.topk_idx.value(ids[i])) : -1;
          bool repeated = base > 0 && args_.distinct_experts && names_before(&args_, token, base, expert);
          MOEWAY_UNROLL
          for (int32_t j = 0; j < i; ++j) repeated = repeated || (args_.distinct_experts && experts[j] == expert);
          experts[i] = repeated ? -1 : expert;
        }
        MOEWAY_UNROLL
        for (int32_t i = 0; i < kAtOnce; ++i) {
          if (experts[i] < 0) continue;
          team_.count_into(&scratch_.rows[experts[i]], 1);
          const int32_t dst = owners_.of(experts[i]);
          const uint64_t bit = uint64_t{1} << (dst & 63);
          const bool again = shape_.num_ranks() > 64 ? goes_before(&args_, token, base + i, dst) : (seen & bit) != 0;
          seen |= bit;
          if (!again) team_.count_into(&scratch_.slots[dst], 1);
        }
      }
    });
  }
  static constexpr int32_t kAtOnce = 8;

  // A route's expert and weight as the caller gave them; reports an id that cannot be.
  struct Named {
    int32_t expert;
    float weight;
  };
  MOEWAY_FN Named named(int64_t token, int32_t k) const {
    const int64_t id = args_.topk_idx.at(token, k);
    const int32_t expert = args_.expert_of(id);
    if (expert < 0 && id != -1) report_route(&args_, token, k);
    const bool weighted = args_.topk_weights.data != nullptr;
    return {expert, weighted ? *reinterpret_cast<const float*>(args_.topk_weights.at(token, k)) : 0.0f};
  }
  // The tokens of `share` in their order. What the next one needs is read while one is worked on.
  template <class Warp>
  MOEWAY_FN void announce(const Warp& warp, const Share& share) const {
    if (share.begin >= share.end) return;
    const int32_t n = exec::spread_size(shape_.topk);
    auto next = warp.spread(n, [&](int i) { return named(share.begin, i); });
    MOEWAY_ROLL
    for (int64_t token = share.begin; token < share.end; ++token) {
      const auto first = next;
      if (token + 1 < share.end) next = warp.spread(n, [&](int i) { return named(token + 1, i); });
      layout::OwnToken own{0, -1};
      int32_t num_lower = 0;  // Ranks of the token below this one.
      announce_chunk(warp, token, 0, n, first, &own, &num_lower);
      MOEWAY_ROLL
      for (int32_t base = exec::kSpread; base < shape_.topk; base += exec::kSpread) {
        const int32_t num = exec::spread_size(shape_.topk - base);
        const auto chunk = warp.spread(num, [&](int i) { return named(token, base + i); });
        announce_chunk(warp, token, base, num, chunk, &own, &num_lower);
      }
      if (own.own_index == 0) own.own_index = num_lower;
      warp.leader([&] { *round_.template at<layout::OwnToken>(round_.workspace.own(parity_of(epoch_), token)) = own; });
    }
  }

  // Routes base .. base + n - 1 of the token: announced, then counted.
  template <class Warp, class Given>
  MOEWAY_FN void announce_chunk(const Warp& warp, int64_t token, int32_t base, int32_t n, const Given& given,
                                layout::OwnToken* own, int32_t* num_lower) const {
    const auto name = warp.spread(n, [&](int i) { return given.mine(i).expert; });
    const auto same_name = warp.match(n, name);
    const auto expert = warp.spread(n, [&](int i) {
      const bool repeated =
          args_.distinct_experts && name.mine(i) >= 0 &&
          ((same_name.mine(i) & exec::below(i)) != 0 || (base > 0 && names_before(&args_, token, base, name.mine(i))));
      if (repeated) report_route(&args_, token, base + i);
      return repeated ? -1 : name.mine(i);
    });
    const auto dst = warp.spread(n, [&](int i) { return expert.mine(i) < 0 ? -1 : owners_.of(expert.mine(i)); });
    const auto same_rank = warp.match(n, dst);
    const auto others = warp.spread(n, [&](int i) {
      return shape_.topk > exec::kSpread ? other_chunks(&args_, token, base, n, dst.mine(i)) : OtherChunks{0, 0, 0};
    });
    const uint32_t firsts = warp.ballot(n, [&](int i) {
      return dst.mine(i) >= 0 && (same_rank.mine(i) & exec::below(i)) == 0 && others.mine(i).before == 0;
    });
    auto lower = warp.spread(n, [&](int i) { return others.mine(i).lower; });
    MOEWAY_ROLL
    for (uint32_t rest = firsts; rest != 0; rest &= rest - 1) {
      const int32_t rank = dst.get(exec::lowest(rest));
      lower = warp.spread(n, [&](int i) { return lower.mine(i) + (rank < dst.mine(i)); });
      ++own->num_results;
      if (rank == round_.rank) own->own_index = 0;
      *num_lower += rank < round_.rank;
    }
    warp.lanes(n, [&](int32_t i) {
      round_.template at<int32_t>(round_.workspace.topk_idx(parity_of(epoch_), token))[base + i] = expert.mine(i);
      if (expert.mine(i) < 0) return;
      const OtherChunks other = others.mine(i);
      const uint32_t ranks = same_rank.mine(i), experts = same_name.mine(i);
      const layout::TokenHead head{static_cast<int32_t>(token), static_cast<uint16_t>(lower.mine(i)),
                                   static_cast<uint16_t>(exec::popcount(ranks) + other.num_routes)};
      // The counters know the chunks before this one.
      const uint32_t position =
          scratch_.rows[expert.mine(i)] + static_cast<uint32_t>(exec::popcount(experts & exec::below(i)));
      const uint32_t slot = scratch_.slots[dst.mine(i)] - (other.before > 0 ? 1 : 0);
      const layout::Route route{expert.mine(i) - owners_.first(dst.mine(i)), base + i, position, given.mine(i).weight};
      send_route(dst.mine(i), slot, head, exec::popcount(ranks & exec::below(i)) + other.before, route);
    });
    warp.sync();  // The counters are read above and change below.
    warp.lanes(n, [&](int32_t i) {
      if (expert.mine(i) < 0) return;
      warp.count_into(&scratch_.rows[expert.mine(i)], 1);
      if ((firsts >> i & 1) != 0) warp.count_into(&scratch_.slots[dst.mine(i)], 1);
    });
    warp.sync();
  }

  // Tells the route's rank of it, as entry `entry` of the header in `slot`; with the first one of the token itself.
  MOEWAY_FN void send_route(int32_t dst, uint32_t slot, const layout::TokenHead& head, int32_t entry,
                            const layout::Route& route) const {
    const int parity = parity_of(epoch_);
    if (own_direct_ && dst == round_.rank) {
      auto* memory = round_.template at<std::byte>(round_.workspace.received(parity, dst, head.token));
      // The row counts from this rank's first of the expert until the counts are known.
      auto* places = reinterpret_cast<layout::RowPlace*>(memory + sizeof(layout::ReceivedToken));
      places[entry] = {route.position, route.weight, static_cast<uint16_t>(route.local_expert),
                       static_cast<uint16_t>(route.k)};
      if (entry == 0) {
        *reinterpret_cast<layout::ReceivedToken*>(memory) = {head.token, head.result_index, head.num_routes, 0};
      }
      return;
    }
    auto* header = reinterpret_cast<exec::Unit*>(peers_.heap(dst) + round_.heap.header(parity, round_.rank, slot));
    exec::store_tagged(header + 1 + entry, round_.heap.route_bits.pack(route, epoch_));
    if (entry == 0) exec::store_tagged(header, layout::TokenHead::pack(head, epoch_));
  }

  // Tells every rank how much comes from here, be it nothing.
  MOEWAY_FN void send_counts() const {
    team_.lanes(shape_.num_ranks(), [&](int32_t dst) {
      // Relaxed: a count tells its epoch itself.
      exec::store_relaxed<exec::Scope::kSystem>(&counts_at(round_, peers_, epoch_, dst)->num_slots,
                                                exec::tagged_count(scratch_.slots[dst], epoch_));
    });
    team_.lanes(shape_.experts.num_experts, [&](int32_t e) {
      const int32_t dst = owners_.of(e);
      auto* rows = reinterpret_cast<uint64_t*>(counts_at(round_, peers_, epoch_, dst) + 1);
      exec::store_relaxed<exec::Scope::kSystem>(&rows[e - owners_.first(dst)],
                                                exec::tagged_count(scratch_.rows[e], epoch_));  // Relaxed: as above.
    });
  }

  const Team& team_;
  const DispatchArgs& args_;
  const Round& round_;
  const layout::Shape& shape_;
  const layout::Owners& owners_;
  const Peers& peers_;
  const uint64_t epoch_;
  const DispatchScratch& scratch_;
  const bool own_direct_;
};

}  // namespace moeway::kernels::direct
