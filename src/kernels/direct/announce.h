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
  exec::min_relaxed<exec::Scope::kDevice>(&args->mistakes->route,
                                          static_cast<uint64_t>(token * args->round.shape().topk + k));
}

template <class Team>
MOEWAY_FN void clear_counters(const Team& team, const layout::Shape& shape, const DispatchScratch& scratch) {
  team.lanes(shape.experts.num_experts, [&](int32_t e) { scratch.rows[e] = scratch.own_rows[e] = 0; });
  team.lanes(shape.num_ranks(), [&](int32_t r) { scratch.slots[r] = scratch.own_slots[r] = 0; });
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

template <class Config, class Team, class Peers>
class Announcer {
 public:
  // `own_direct`: own tokens go to their rows in the same launch, so that they need no header.
  MOEWAY_FN Announcer(Config, const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
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

  // `share` of this team; the last one also tells the counts, and that the caller gave `num_tokens`. After
  // clear_counters() and a barrier.
  MOEWAY_FN void run(const Share& share, int32_t num_tokens, bool last) const {
    // One warp keeps the counters: it takes tokens in their order, so that it needs no barrier. The last one: it has the
    // least to do with counting, and with the counts that come. What it says of the first token is ready when the routes
    // before are counted.
    Prepared first;
    team_.warps_in_turn([&](const auto& warp, int32_t turn, int32_t num_warps) {
      if (turn == num_warps - 1 && share.begin < share.end) first = prepare(warp, share.begin, 0);
    });
    if (share.begin < share.end || last) count_tokens(share.first, share.begin, scratch_.rows, scratch_.slots);
    if (last) count_tokens(share.begin, share.end, scratch_.own_rows, scratch_.own_slots);
    team_.sync();
    if (last) {
      send_counts(num_tokens);
      team_.sync();  // All have read the counters that change below.
    }
    team_.warps_in_turn([&](const auto& warp, int32_t turn, int32_t num_warps) {
      if (turn == num_warps - 1) announce(warp, share, first);
    });
  }

 private:
  // A route, as far as its token alone tells.
  struct Route {
    int32_t expert;  // -1: none.
    int32_t dst;
    float weight;
    uint16_t before_it;   // Routes of the token to the same expert before it in its chunk,
    uint16_t entry;       // to the same rank before it in all,
    uint16_t num_routes;  // and to that rank.
    uint16_t lower;       // Ranks of the token below it.
    int32_t counted;      // 1 if a chunk before has a route to that rank.
  };
  using Prepared = typename Team::template Spread<Route>;

  // Adds the routes of the tokens begin .. end - 1. A lane takes whole tokens: it knows where each has been, and works on
  // several of its routes at once.
  MOEWAY_FN void count_tokens(int64_t begin, int64_t end, uint32_t* rows, uint32_t* slots) const {
    team_.lanes(static_cast<int32_t>(end - begin), [&](int32_t i) {
      const int64_t token = begin + i;
      const std::byte* at = args_.topk_idx.matrix.row(token);
      uint64_t seen = 0;  // Ranks; of more than 64 the routes before are asked.
      MOEWAY_ROLL
      for (int32_t base = 0; base < shape_.topk; base += kAtOnce) {
        IndexView::Raw ids[kAtOnce] = {};
        MOEWAY_UNROLL
        for (int32_t j = 0; j < kAtOnce; ++j) {
          if (base + j < shape_.topk) ids[j] = args_.topk_idx.read(at);
          at += args_.topk_idx.matrix.column_stride;
        }
        int32_t experts[kAtOnce], ranks[kAtOnce];
        MOEWAY_UNROLL
        for (int32_t j = 0; j < kAtOnce; ++j)
          experts[j] = base + j < shape_.topk ? args_.expert_of(args_.topk_idx.value(ids[j])) : -1;
        if (args_.distinct_experts) leave_out_repeated(token, base, experts);
        // All of them before the first is counted, so that none waits for another.
        MOEWAY_UNROLL
        for (int32_t j = 0; j < kAtOnce; ++j) ranks[j] = owners_.of(experts[j] < 0 ? 0 : experts[j]);
        MOEWAY_UNROLL
        for (int32_t j = 0; j < kAtOnce; ++j) seen |= experts[j] < 0 ? 0 : uint64_t{1} << (ranks[j] & 63);
        MOEWAY_UNROLL
        for (int32_t j = 0; j < kAtOnce; ++j) {
          if (experts[j] >= 0) team_.count_into(&rows[experts[j]]);
        }
        if (!unusual<Config>(shape_.num_ranks() > 64)) continue;
        MOEWAY_UNROLL
        for (int32_t j = 0; j < kAtOnce; ++j) {
          if (experts[j] >= 0 && !goes_before(&args_, token, base + j, ranks[j]))
            team_.count_into_few(&slots[ranks[j]]);
        }
      }
      if (unusual<Config>(shape_.num_ranks() > 64)) return;
      MOEWAY_ROLL
      for (; seen != 0; seen &= seen - 1) team_.count_into_few(&slots[exec::lowest(seen)]);
    });
  }
  static constexpr int32_t kAtOnce = 8;
  // Makes -1 of experts that the token has named before: routes base .. base + kAtOnce - 1.
  MOEWAY_FN void leave_out_repeated(int64_t token, int32_t base, int32_t (&experts)[kAtOnce]) const {
    if (base > 0) {
      MOEWAY_ROLL
      for (int32_t j = 0; j < kAtOnce; ++j) {
        if (experts[j] >= 0 && names_before(&args_, token, base, experts[j])) experts[j] = -1;
      }
    }
    MOEWAY_UNROLL
    for (int32_t j = kAtOnce - 1; j > 0; --j) {
      bool repeated = false;
      MOEWAY_UNROLL
      for (int32_t before = 0; before < j; ++before) repeated |= experts[before] == experts[j];
      experts[j] = repeated ? -1 : experts[j];
    }
  }

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
  // The tokens of `share` in their order; `first` is of the first one.
  template <class Warp>
  MOEWAY_FN void announce(const Warp& warp, const Share& share, const Prepared& first) const {
    Prepared routes = first;
    MOEWAY_ROLL
    for (int64_t token = share.begin; token < share.end;) {
      send_routes(warp, token, 0, routes);
      MOEWAY_ROLL
      for (int32_t base = exec::kSpread; unusual<Config>(base < shape_.topk); base += exec::kSpread)
        send_routes(warp, token, base, prepare(warp, token, base));
      if (++token < share.end) routes = prepare(warp, token, 0);
    }
  }

  // Routes base .. base + kSpread - 1 of the token, as far as they go.
  template <class Warp>
  MOEWAY_FN Prepared prepare(const Warp& warp, int64_t token, int32_t base) const {
    const int32_t n = exec::spread_size(shape_.topk - base);
    const auto given = warp.spread(n, [&](int i) { return named(token, base + i); });
    const auto name = warp.spread(n, [&](int i) { return given.mine(i).expert; });
    const auto same_name = warp.match(n, name);
    const auto expert = warp.spread(n, [&](int i) {
      const bool repeated = args_.distinct_experts && name.mine(i) >= 0 &&
                            ((same_name.mine(i) & exec::below(i)) != 0 ||
                             (unusual<Config>(base > 0) && names_before(&args_, token, base, name.mine(i))));
      if (repeated) report_route(&args_, token, base + i);
      return repeated ? -1 : name.mine(i);
    });
    const auto dst = warp.spread(n, [&](int i) { return expert.mine(i) < 0 ? -1 : owners_.of(expert.mine(i)); });
    const auto same_rank = warp.match(n, dst);
    const bool one_chunk = !unusual<Config>(shape_.topk > exec::kSpread);

    layout::OwnToken own{0, -1};
    int32_t lower_than_own = 0;
    auto lower = warp.spread(n, [&](int) { return 0; });
    for_each_set<Config>(shape_.num_ranks(), [&](int32_t low) {
      const uint32_t ranks = one_chunk ? warp.unite(n, [&](int i) { return rank_bit(dst.mine(i), low); })
                                       : ranks_of<Config>(warp, args_, token, low);
      lower = warp.spread(n, [&](int i) { return lower.mine(i) + num_below(ranks, dst.mine(i), low); });
      own.num_results += exec::popcount(ranks);
      lower_than_own += num_below(ranks, round_.rank, low);
      if ((ranks & rank_bit(round_.rank, low)) != 0) own.own_index = lower_than_own;
    });
    if (base == 0)
      warp.leader([&] { *round_.template at<layout::OwnToken>(round_.workspace.own(parity_of(epoch_), token)) = own; });
    warp.lanes(n, [&](int32_t i) {
      round_.template at<int32_t>(round_.workspace.topk_idx(parity_of(epoch_), token))[base + i] = expert.mine(i);
    });

    return warp.spread(n, [&](int i) {
      const OtherChunks other = one_chunk ? OtherChunks{0, 0} : other_chunks(&args_, token, base, n, dst.mine(i));
      const uint32_t ranks = same_rank.mine(i), experts = same_name.mine(i), before = exec::below(i);
      return Route{expert.mine(i),
                   dst.mine(i),
                   given.mine(i).weight,
                   static_cast<uint16_t>(exec::popcount(experts & before)),
                   static_cast<uint16_t>(exec::popcount(ranks & before) + other.before),
                   static_cast<uint16_t>(exec::popcount(ranks) + other.num_routes),
                   static_cast<uint16_t>(lower.mine(i)),
                   other.before > 0 ? 1 : 0};
    });
  }

  // Announces what prepare() gave, then counts it.
  template <class Warp>
  MOEWAY_FN void send_routes(const Warp& warp, int64_t token, int32_t base, const Prepared& routes) const {
    const int32_t n = exec::spread_size(shape_.topk - base);
    warp.lanes(n, [&](int32_t i) {
      const Route route = routes.mine(i);
      if (route.expert < 0) return;
      const layout::TokenHead head{static_cast<int32_t>(token), route.lower, route.num_routes};
      // The counters know the chunks before this one.
      const uint32_t position = scratch_.rows[route.expert] + route.before_it;
      const uint32_t slot = scratch_.slots[route.dst] - static_cast<uint32_t>(route.counted);
      send_route(route.dst, slot, head, route.entry,
                 {route.expert - owners_.first(route.dst), base + i, position, route.weight});
    });
    warp.sync();  // The counters are read above and change below.
    warp.lanes(n, [&](int32_t i) {
      const Route route = routes.mine(i);
      if (route.expert < 0) return;
      warp.count_into(&scratch_.rows[route.expert]);
      if (route.entry == 0) warp.count_into(&scratch_.slots[route.dst]);
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
  MOEWAY_FN void send_counts(int32_t num_tokens) const {
    team_.lanes(shape_.num_ranks(), [&](int32_t dst) {
      // Relaxed: a count tells its epoch itself.
      exec::store_relaxed<exec::Scope::kSystem>(
          &counts_at(round_, peers_, epoch_, dst)->num_slots,
          exec::tagged_count(scratch_.slots[dst] + scratch_.own_slots[dst], epoch_));
      if (!unusual<Config>(shape_.replicated())) return;
      // Relaxed: as above.
      exec::store_relaxed<exec::Scope::kSystem>(&counts_at(round_, peers_, epoch_, dst)->num_tokens,
                                                exec::tagged_count(static_cast<uint32_t>(num_tokens), epoch_));
    });
    team_.lanes(shape_.experts.num_experts, [&](int32_t e) {
      const int32_t dst = owners_.of(e);
      auto* rows = reinterpret_cast<uint64_t*>(counts_at(round_, peers_, epoch_, dst) + 1);
      // Relaxed: as above.
      exec::store_relaxed<exec::Scope::kSystem>(&rows[e - owners_.first(dst)],
                                                exec::tagged_count(scratch_.rows[e] + scratch_.own_rows[e], epoch_));
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
