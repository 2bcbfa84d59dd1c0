// combine_send of the direct protocol (docs/protocols/direct.md): what the experts made of each received token goes
// back to the token's owners: the rank that sent it and its replicas. It waits for nothing.
#pragma once

#include <cstdint>

#include "kernels/direct/combine_args.h"
#include "kernels/direct/sums.h"

namespace moeway::kernels::direct {

struct WeightedRow {
  const std::byte* row;
  float weight;
  int32_t unused;
};

// What combine's launches share: a warp works on slices of tokens.
template <class Config, class Team, class Peers>
class Combiner {
 public:
  using Row = typename Config::Row;
  using Out = typename Config::Out;
  using Places = typename Team::template Spread<layout::RowPlace>;

  MOEWAY_FN Combiner(const Team& team, const CombineArgs& args, const Peers& peers, uint64_t epoch)
      : team_(team), args_(args), round_(args.round), shape_(args.round.shape()), peers_(peers), epoch_(epoch) {}

  // What dispatch has kept of a received token, as far as kSpread places, read before it is known how many there are.
  struct Record {
    const std::byte* memory;
    layout::ReceivedToken token;
    Places places;
  };
  MOEWAY_FN Record read(int32_t src, int64_t index) const {
    const auto* memory = round_.template at<const std::byte>(round_.workspace.received(parity_of(epoch_), src, index));
    return {memory, *reinterpret_cast<const layout::ReceivedToken*>(memory), places_from(memory, 0, shape_.topk)};
  }

  // One slice of a token received from `src`, to its owners.
  MOEWAY_FN void return_slice(int32_t src, const Record& record, int slice) const {
    const layout::ReceivedToken& received = record.token;
    if constexpr (Config::kReduced) {
      Slice<Team, Out> result;
      sum_routes(record, slice, &result);
      send(src, received.token, received.result_index, slice, result);
    } else if (shape_.results == layout::Results::kPerRank) {
      Slice<Team, Row> row;
      row.load(team_, slice, args_.hidden, token_row(src, received.token), whole_rows());
      send(src, received.token, received.result_index, slice, row);
    } else {
      for_each_place(record, [&](const layout::RowPlace& place) {
        Slice<Team, Row> row;
        load_row(place, slice, &row);
        send(src, received.token, place.k, slice, row);
      });
    }
  }

  // The sum of a token's rows on this rank, rounded as it would travel.
  MOEWAY_FN void sum_routes(const Record& record, int slice, Slice<Team, Out>* result) const {
    const int32_t num_routes = record.token.num_routes;
    Sum<Team> sum;
    MOEWAY_ROLL
    for (int32_t base = 0; base == 0 || unusual<Config>(base < num_routes); base += exec::kSpread) {
      const Places places =
          unusual<Config>(base > 0) ? places_from(record.memory, base, num_routes - base) : record.places;
      const int32_t n = exec::spread_size(num_routes - base);
      const auto rows = team_.spread(n, [&](int j) {
        const layout::RowPlace place = places.mine(j);
        return WeightedRow{args_.rows.row(place.local_expert, place.row),
                           unusual<Config>(args_.unweighted) ? 1.0f : place.weight, 0};
      });
      add_rows<Row>(
          team_, slice, args_.hidden, n, [&](int32_t j) { return rows.get(j).row; },
          [&](int32_t j) { return rows.get(j).weight; }, whole_rows(), &sum);
    }
    result->round(team_, slice, args_.hidden, sum);
  }

  // A row that goes back as it is; zeros where dispatch had no room for it.
  MOEWAY_FN void load_row(const layout::RowPlace& place, int slice, Slice<Team, Row>* row) const {
    if (place.row < 0) {
      row->round(team_, slice, args_.hidden, Sum<Team>());
    } else {
      row->load(team_, slice, args_.hidden, args_.rows.row(place.local_expert, place.row), whole_rows());
    }
  }
  // sum += row, of a token_major row.
  MOEWAY_FN void add_token_row(const std::byte* row, int slice, Sum<Team>* sum) const {
    Slice<Team, Row> one;
    one.load(team_, slice, args_.hidden, row, whole_rows());
    one.add_to(team_, slice, args_.hidden, 1.0f, sum);
  }

  MOEWAY_FN const std::byte* token_row(int32_t src, int64_t token) const {
    return args_.rows.row(0, int64_t{group_of<Config>(round_, src)} * shape_.max_tokens + token);
  }
  template <class F>
  MOEWAY_FN void for_each_place(const Record& record, F f) const {
    const int32_t num_routes = record.token.num_routes;
    MOEWAY_ROLL
    for (int32_t base = 0; base == 0 || unusual<Config>(base < num_routes); base += exec::kSpread) {
      const Places places =
          unusual<Config>(base > 0) ? places_from(record.memory, base, num_routes - base) : record.places;
      MOEWAY_ROLL
      for (int32_t j = 0; j < exec::kSpread && base + j < num_routes; ++j) f(places.get(j));
    }
  }

  MOEWAY_FN bool whole_rows() const { return !unusual<Config>(!args_.whole_rows); }
  MOEWAY_FN bool results_tell() const { return !unusual<Config>(!shape_.results_tell()); }

 private:
  MOEWAY_FN Places places_from(const std::byte* memory, int32_t base, int32_t left) const {
    const auto* places = reinterpret_cast<const layout::RowPlace*>(memory + sizeof(layout::ReceivedToken));
    return team_.spread(exec::spread_size(left), [&](int j) { return places[base + j]; });
  }

  // Writes a slice of result `q` of a token that `src` has sent, and signals it if it does not tell by itself.
  template <class T>
  MOEWAY_FN void send(int32_t src, int32_t token, int32_t q, int slice, const Slice<Team, T>& part) const {
    const int parity = parity_of(epoch_);
    for_each_member<Config>(round_, src, [&](int32_t owner) {
      part.put(team_, slice, args_.hidden, peers_.heap(owner) + round_.heap.result(parity, token, q), results_tell());
    });
    if (results_tell()) return;
    if (Team::kWholeRows && slice + 1 < team_.slices(args_.hidden)) return;
    team_.sync();
    team_.leader([&] {
      const int64_t signal = round_.heap.result_signal(parity, token, q, Team::kWholeRows ? 0 : slice);
      for_each_member<Config>(round_, src, [&](int32_t owner) {
        // Release; pairs with the acquire in wait_result(): the slice comes before it, what other lanes wrote by the
        // sync() above.
        exec::store_release<exec::Scope::kSystem>(reinterpret_cast<uint64_t*>(peers_.heap(owner) + signal), epoch_);
      });
    });
  }

  const Team& team_;
  const CombineArgs& args_;
  const Round& round_;
  const layout::Shape& shape_;
  const Peers& peers_;
  const uint64_t epoch_;
};

// f(token, slice) for this team's share of the slices of `num_tokens` tokens that come after `num_before` others.
template <class Team, class F>
MOEWAY_FN bool for_each_slice(const Team& team, const CombineArgs& args, int64_t num_before, int64_t num_tokens, F f) {
  if (Team::kWholeRows) {
    const int slices = team.slices(args.hidden);
    for (int64_t token = first_share(num_before, team.id(), team.count()); token < num_tokens; token += team.count()) {
      for (int slice = 0; slice < slices; ++slice) {
        if (!f(token, slice)) return false;
      }
    }
    return true;
  }
  const auto slices = static_cast<int64_t>(args.slices.divisor), num_items = num_tokens * slices;
  MOEWAY_ROLL
  for (int64_t item = first_share(num_before * slices, team.id(), team.count()); item < num_items;
       item += team.count()) {
    const int64_t token = item >> 31 == 0 ? args.slices.divide(static_cast<uint32_t>(item)) : item / slices;
    if (!f(token, static_cast<int>(item - token * slices))) return false;
  }
  return true;
}

// Results that a received token takes back.
MOEWAY_FN uint32_t num_results(const layout::Shape& shape, const layout::ReceivedToken& received) {
  return shape.results != layout::Results::kPerRoute ? 1 : static_cast<uint32_t>(received.num_routes);
}

template <class Team>
MOEWAY_FN void count_results(const Team& team, const Round& round, int32_t owner, uint32_t num) {
  team.leader([&] {
    // Relaxed: the host only looks.
    if (num > 0) exec::add_relaxed<exec::Scope::kDevice>(&round.peer_counters(owner)->results_sent, uint64_t{num});
  });
}

// What dispatch has left behind, read as early as possible: numbers of both epochs, before it is known which one it is.
template <class Team>
struct Arrivals {
  int32_t own_even, own_odd;
  typename Team::template Spread<uint32_t> received;  // [kEpochs, W], if a warp has lanes for so many.
  uint64_t epoch;

  MOEWAY_FN Arrivals(const Team& team, const Round& round, uint64_t of) : epoch(of) {
    const auto* tokens = round.at<const int32_t>(round.workspace.num_tokens(0));
    own_even = tokens[0];
    own_odd = tokens[1];
    const auto* numbers = round.at<const uint32_t>(round.workspace.num_received(0, 0));
    const int32_t n = layout::kEpochs * round.shape().num_ranks();
    received = team.spread(exec::spread_size(n), [&](int i) { return numbers[i]; });
  }
  MOEWAY_FN int32_t num_tokens(int parity) const { return parity == 0 ? own_even : own_odd; }
  MOEWAY_FN uint32_t num_received(const Round& round, int parity, int32_t src) const {
    const int32_t i = parity * round.shape().num_ranks() + src;
    if (i < exec::kSpread) return received.get(i);
    return *round.at<const uint32_t>(round.workspace.num_received(parity, src));
  }
};

// Returns this team's share of what has been received. `own_direct`: own tokens are left to the receiving half.
template <class Config, class Team, class Peers>
MOEWAY_FN void send_results(const Team& team, const CombineArgs& args, const Peers& peers,
                            const Arrivals<Team>& arrivals, bool own_direct) {
  const Round& round = args.round;
  const layout::Shape& shape = round.shape();
  const uint64_t epoch = arrivals.epoch;
  const int parity = parity_of(epoch);
  const Combiner<Config, Team, Peers> combiner(team, args, peers, epoch);
  int64_t num_before = 0;
  MOEWAY_ROLL
  for (int32_t step = own_direct ? 1 : 0; step < shape.num_ranks(); ++step) {
    const int32_t src = round.source(step);
    // Own tokens are kept under their numbers, and some have no expert here. With replicas they are as all others.
    const bool own = src == round.rank && !unusual<Config>(shape.replicated());
    const int64_t num_tokens = own ? arrivals.num_tokens(parity) : int64_t{arrivals.num_received(round, parity, src)};
    uint32_t num = 0;
    for_each_slice(team, args, num_before, num_tokens, [&](int64_t index, int slice) {
      if (own && round.at<const layout::OwnToken>(round.workspace.own(parity, index))->own_index < 0) return true;
      const auto record = combiner.read(src, index);
      if (slice == 0) num += num_results(shape, record.token);
      combiner.return_slice(src, record, slice);
      return true;
    });
    for_each_member<Config>(round, src, [&](int32_t owner) { count_results(team, round, owner, num); });
    num_before += num_tokens;
  }
}

template <class Config, class Team, class Peers>
MOEWAY_FN void combine_send(const Team& team, const CombineArgs& args, const Peers& peers) {
  team.begin();
  const auto& warp = team.warp();
  send_results<Config>(warp, args, peers, Arrivals(warp, args.round, args.round.epoch(team)), false);
}

}  // namespace moeway::kernels::direct
