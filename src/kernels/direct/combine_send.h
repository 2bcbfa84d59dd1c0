// combine_send of the direct protocol (docs/protocols/direct.md): what the experts made of each received token goes
// back to the token's owner. It waits for nothing.
#pragma once

#include <cstdint>

#include "kernels/direct/combine_args.h"
#include "kernels/direct/sums.h"

namespace moeway::kernels::direct {

// What combine's launches share: a warp works on slices of tokens.
template <class Config, class Team, class Peers>
class Combiner {
 public:
  using Row = typename Config::Row;
  using Out = typename Config::Out;
  using Places = typename Team::template Spread<layout::RowPlace>;

  MOEWAY_FN Combiner(const Team& team, const CombineArgs& args, const Peers& peers, uint64_t epoch)
      : team_(team),
        args_(args),
        round_(args.round),
        shape_(args.round.shape()),
        peers_(peers),
        epoch_(epoch),
        whole_rows_(args.rows.whole_units(int64_t{args.hidden} * static_cast<int64_t>(sizeof(Row)))) {}

  // One slice of received token `index` of `src` to its owner.
  MOEWAY_FN void return_slice(int32_t src, int64_t index, int slice) const {
    const std::byte* memory =
        round_.template at<const std::byte>(round_.workspace.received(parity_of(epoch_), src, index));
    const Places places = first_places(memory);
    const auto received = *reinterpret_cast<const layout::ReceivedToken*>(memory);
    if constexpr (Config::kReduced) {
      Slice<Team, Out> result;
      sum_routes(memory, received.num_routes, places, slice, &result);
      send(src, received.token, received.result_index, slice, result);
    } else if (shape_.results == layout::Results::kPerRank) {
      Slice<Team, Row> row;
      row.load(team_, slice, args_.hidden, token_row(src, received.token), whole_rows_);
      send(src, received.token, received.result_index, slice, row);
    } else {
      for_each_place(memory, received.num_routes, places, [&](const layout::RowPlace& place) {
        Slice<Team, Row> row;
        row.load(team_, slice, args_.hidden, args_.rows.row(place.local_expert, place.row), whole_rows_);
        send(src, received.token, place.k, slice, row);
      });
    }
  }

  // The sum of a token's rows on this rank, rounded as it would travel.
  MOEWAY_FN void sum_routes(const std::byte* memory, int32_t num_routes, const Places& first, int slice,
                            Slice<Team, Out>* result) const {
    Sum<Team> sum;
    for (int32_t base = 0; base < num_routes; base += exec::kSpread) {
      const Places places = base == 0 ? first : places_from(memory, base, num_routes - base);
      add_rows<Row>(
          team_, slice, args_.hidden, num_routes - base < exec::kSpread ? num_routes - base : exec::kSpread,
          [&](int32_t j) {
            const layout::RowPlace place = places.get(j);
            return args_.rows.row(place.local_expert, place.row);
          },
          [&](int32_t j) { return places.get(j).weight; }, whole_rows_, &sum);
    }
    result->round(team_, slice, args_.hidden, sum);
  }

  // sum += weight * row, of one row.
  MOEWAY_FN void add_row(const std::byte* row, int slice, float weight, Sum<Team>* sum) const {
    Slice<Team, Row> one;
    one.load(team_, slice, args_.hidden, row, whole_rows_);
    one.add_to(team_, slice, args_.hidden, weight, sum);
  }

  // The first kSpread places of a received token, read before it is known how many there are.
  MOEWAY_FN Places first_places(const std::byte* memory) const { return places_from(memory, 0, shape_.topk); }
  MOEWAY_FN const std::byte* token_row(int32_t src, int64_t token) const {
    return args_.rows.row(0, int64_t{src} * shape_.max_tokens + token);
  }
  template <class F>
  MOEWAY_FN void for_each_place(const std::byte* memory, int32_t num_routes, const Places& first, F f) const {
    for (int32_t base = 0; base < num_routes; base += exec::kSpread) {
      const Places places = base == 0 ? first : places_from(memory, base, num_routes - base);
      for (int32_t j = 0; j < exec::kSpread && base + j < num_routes; ++j) f(places.get(j));
    }
  }

 private:
  MOEWAY_FN Places places_from(const std::byte* memory, int32_t base, int32_t left) const {
    const auto* places = reinterpret_cast<const layout::RowPlace*>(memory + sizeof(layout::ReceivedToken));
    return team_.spread(left < exec::kSpread ? left : exec::kSpread, [&](int j) { return places[base + j]; });
  }

  // Writes a slice of result `q` of the owner's token, and signals it if it does not tell by itself.
  template <class T>
  MOEWAY_FN void send(int32_t owner, int32_t token, int32_t q, int slice, const Slice<Team, T>& part) const {
    std::byte* heap = peers_.heap(owner);
    const int parity = parity_of(epoch_);
    part.put(team_, slice, args_.hidden, heap + round_.heap.result(parity, token, q), shape_.results_tell());
    if (shape_.results_tell()) return;
    if (Team::kWholeRows && slice + 1 < team_.slices(args_.hidden)) return;
    team_.sync();
    team_.leader([&] {
      const int64_t signal = round_.heap.result_signal(parity, token, q, Team::kWholeRows ? 0 : slice);
      // Release; pairs with the acquire in wait_result(): the slice comes before it, what other lanes wrote by the
      // sync() above.
      exec::store_release<exec::Scope::kSystem>(reinterpret_cast<uint64_t*>(heap + signal), epoch_);
    });
  }

  const Team& team_;
  const CombineArgs& args_;
  const Round& round_;
  const layout::Shape& shape_;
  const Peers& peers_;
  const uint64_t epoch_;
  const bool whole_rows_;
};

// f(token, slice) for this team's share of the slices of `num_tokens` tokens that come after `num_before` others.
template <class Team, class F>
MOEWAY_FN bool for_each_slice(const Team& team, int64_t num_before, int64_t num_tokens, int hidden, F f) {
  const int slices = team.slices(hidden);
  if (Team::kWholeRows) {
    for (int64_t token = first_share(num_before, team.id(), team.count()); token < num_tokens; token += team.count()) {
      for (int slice = 0; slice < slices; ++slice) {
        if (!f(token, slice)) return false;
      }
    }
    return true;
  }
  const auto num_items = static_cast<uint64_t>(num_tokens * slices);
  for (auto item = static_cast<uint64_t>(first_share(num_before * slices, team.id(), team.count())); item < num_items;
       item += static_cast<uint64_t>(team.count())) {
    const auto token = static_cast<uint32_t>(item) / static_cast<uint32_t>(slices);
    if (!f(static_cast<int64_t>(token), static_cast<int>(item - uint64_t{token} * static_cast<uint32_t>(slices))))
      return false;
  }
  return true;
}

// Returns this team's share of what has been received. `own_direct`: own tokens are left to the receiving half.
template <class Config, class Team, class Peers>
MOEWAY_FN void send_results(const Team& team, const CombineArgs& args, const Peers& peers, uint64_t epoch,
                            bool own_direct) {
  const Round& round = args.round;
  const layout::Shape& shape = round.shape();
  const int parity = parity_of(epoch);
  const Combiner<Config, Team, Peers> combiner(team, args, peers, epoch);
  const auto* num_received = round.at<const uint32_t>(round.workspace.num_received(parity, 0));
  int64_t num_before = 0;
  uint32_t num_results = 0;
  const auto count = [&](int32_t src, int64_t index) {
    const int64_t memory = round.workspace.received(parity, src, index);
    const bool per_route = shape.results == layout::Results::kPerRoute;
    num_results += per_route ? static_cast<uint32_t>(round.at<const layout::ReceivedToken>(memory)->num_routes) : 1u;
  };
  for (int32_t step = 0; step < shape.num_ranks(); ++step) {
    const int32_t turn = round.rank + step, src = turn < shape.num_ranks() ? turn : turn - shape.num_ranks();
    // Own tokens are kept under their numbers, and some have no expert here.
    const bool own = src == round.rank;
    const int64_t num_tokens =
        own ? *round.at<const int32_t>(round.workspace.num_tokens(parity)) : int64_t{num_received[src]};
    for_each_slice(team, num_before, num_tokens, args.hidden, [&](int64_t index, int slice) {
      if (own && round.at<const layout::OwnToken>(round.workspace.own(parity, index))->own_index < 0) return true;
      if (slice == 0) count(src, index);
      if (!own || !own_direct) combiner.return_slice(src, index, slice);
      return true;
    });
    num_before += num_tokens;
  }
  team.leader([&] {
    // Relaxed: the host reads it after the launch.
    if (num_results > 0)
      exec::add_relaxed<exec::Scope::kDevice>(&round.counters()->results_sent, uint64_t{num_results});
  });
}

template <class Config, class Team, class Peers>
MOEWAY_FN void combine_send(const Team& team, const CombineArgs& args, const Peers& peers) {
  const uint64_t epoch = args.round.epoch(team);
  send_results<Config>(team.warp(), args, peers, epoch, false);
}

}  // namespace moeway::kernels::direct
