// combine_recv of the direct protocol (docs/protocols/direct.md): waits for the results of each own token and adds
// them; and both halves of combine in one launch.
#pragma once

#include <cstdint>

#include "kernels/direct/combine_args.h"
#include "kernels/direct/combine_send.h"

namespace moeway::kernels::direct {

// The rank that owes result `q` of a token: with results per route the owner of route q, else the q-th rank of those
// that own an expert of it.
MOEWAY_RARE int32_t sender_of(const layout::Shape* shape, const int32_t* experts, int32_t q) {
  if (shape->results == layout::Results::kPerRoute) return shape->experts.owner(experts[q]);
  int32_t rank = -1;
  MOEWAY_ROLL
  for (int32_t i = 0; i <= q; ++i) {
    int32_t next = shape->num_ranks();
    MOEWAY_ROLL
    for (int32_t k = 0; k < shape->topk; ++k) {
      const int32_t owner = experts[k] < 0 ? -1 : shape->experts.owner(experts[k]);
      if (owner > rank && owner < next) next = owner;
    }
    rank = next;
  }
  return rank;
}

template <class Config, class Team, class Peers>
class ResultReceiver {
 public:
  using Row = typename Config::Row;
  using Out = typename Config::Out;

  // `own_direct`: what this rank's experts made of own tokens is read where it lies.
  MOEWAY_FN ResultReceiver(const Team& team, const CombineArgs& args, const Peers& peers, uint64_t epoch,
                           bool own_direct)
      : team_(team),
        args_(args),
        round_(args.round),
        shape_(args.round.shape()),
        heap_(peers.heap(args.round.rank)),
        epoch_(epoch),
        combiner_(team, args, peers, epoch),
        own_direct_(own_direct) {}

  // One slice of an own token's sum; counts results that did not have to be sent. False if the launch must end.
  MOEWAY_FN bool recv(int64_t token, int slice, uint32_t* num) const {
    const int parity = parity_of(epoch_);
    const auto own = *round_.template at<const layout::OwnToken>(round_.workspace.own(parity, token));
    // Nobody else needs it, and there is none for what other members of the group send.
    const Record record = own_direct_ ? combiner_.read(round_.rank, token) : Record{};
    if (is_direct(own) && slice == 0) *num += num_results(shape_, record.token);
    Sum<Team> sum;
    if (unusual<Config>(args_.adds_to_y)) {
      if (own.num_results == 0) return true;
      Slice<Team, Out> before;
      before.load(team_, slice, args_.hidden, args_.y.row(token), !unusual<Config>(!args_.whole_sums));
      before.add_to(team_, slice, args_.hidden, 1.0f, &sum);
    }
    bool come = true;
    if constexpr (Config::kReduced) {
      come = add_sums(token, slice, own, record, &sum);
    } else {
      come = shape_.results == layout::Results::kPerRank ? add_token_rows(token, slice, own, &sum)
                                                         : add_routes(token, slice, own, record, &sum);
    }
    if (!come) return false;
    Slice<Team, Out> y;
    y.round(team_, slice, args_.hidden, sum);
    y.store(team_, slice, args_.hidden, args_.y.row(token), !unusual<Config>(!args_.whole_sums));
    return true;
  }

 private:
  using Record = typename Combiner<Config, Team, Peers>::Record;

  // Whether this rank's part of the token's sum is read where it lies.
  MOEWAY_FN bool is_direct(const layout::OwnToken& own) const { return own_direct_ && own.own_index >= 0; }

  // In rank order; each rank's part is rounded to the result type, this rank's too.
  MOEWAY_FN bool add_sums(int64_t token, int slice, const layout::OwnToken& own, const Record& record,
                          Sum<Team>* sum) const {
    Slice<Team, Out> part;
    const bool direct = is_direct(own);
    if (direct) combiner_.sum_routes(record, slice, &part);
    MOEWAY_ROLL
    for (int32_t q = 0; q < own.num_results; ++q) {
      if (direct && q == own.own_index) {
        part.add_to(team_, slice, args_.hidden, 1.0f, sum);
      } else if (!add_result<Out>(token, q, slice, 1.0f, sum)) {
        return false;
      }
    }
    return true;
  }
  MOEWAY_FN bool add_token_rows(int64_t token, int slice, const layout::OwnToken& own, Sum<Team>* sum) const {
    MOEWAY_ROLL
    for (int32_t q = 0; q < own.num_results; ++q) {
      if (own_direct_ && q == own.own_index) {
        combiner_.add_token_row(combiner_.token_row(round_.rank, token), slice, sum);
      } else if (!add_result<Row>(token, q, slice, 1.0f, sum)) {
        return false;
      }
    }
    return true;
  }
  // In order of k, each route with its weight.
  MOEWAY_FN bool add_routes(int64_t token, int slice, const layout::OwnToken& own, const Record& record,
                            Sum<Team>* sum) const {
    const bool direct = is_direct(own);
    const auto* kept =
        direct ? reinterpret_cast<const layout::RowPlace*>(record.memory + sizeof(layout::ReceivedToken)) : nullptr;
    const auto* experts = round_.template at<const int32_t>(round_.workspace.topk_idx(parity_of(epoch_), token));
    int32_t next_own = 0;  // Own places are in order of k.
    MOEWAY_ROLL
    for (int32_t base = 0; base == 0 || unusual<Config>(base < shape_.topk); base += exec::kSpread) {
      const int32_t n = exec::spread_size(shape_.topk - base);
      const auto expert = team_.spread(n, [&](int i) { return experts[base + i]; });
      const auto weight = team_.spread(
          n, [&](int i) { return *reinterpret_cast<const float*>(args_.topk_weights.at(token, base + i)); });
      MOEWAY_ROLL
      for (int32_t i = 0; i < n; ++i) {
        if (expert.get(i) < 0) continue;
        if (direct && next_own < record.token.num_routes && kept[next_own].k == base + i) {
          Slice<Team, Row> row;
          combiner_.load_row(kept[next_own++], slice, &row);
          row.add_to(team_, slice, args_.hidden, weight.get(i), sum);
        } else if (!add_result<Row>(token, base + i, slice, weight.get(i), sum)) {
          return false;
        }
      }
    }
    return true;
  }

  // Waits for a slice of result `q` and adds it.
  template <class T>
  MOEWAY_FN bool add_result(int64_t token, int32_t q, int slice, float weight, Sum<Team>* sum) const {
    std::byte* slot = heap_ + round_.heap.result(parity_of(epoch_), token, q);
    Slice<Team, T> part;
    if (combiner_.results_tell()) {
      const bool come =
          team_.poll([&] { return part.take(team_, slice, args_.hidden, slot); }, [&] { return missing(token, q, 0); });
      if (!come) return false;
      part.put_back(team_, slice, args_.hidden, slot);
    } else {
      if (!wait_result(token, q, slice)) return false;
      part.load(team_, slice, args_.hidden, slot, true);
    }
    part.add_to(team_, slice, args_.hidden, weight, sum);
    return true;
  }
  MOEWAY_FN bool wait_result(int64_t token, int32_t q, int slice) const {
    if (Team::kWholeRows && slice > 0) return true;  // The signal of the first is for all.
    const auto* signal = reinterpret_cast<const uint64_t*>(
        heap_ + round_.heap.result_signal(parity_of(epoch_), token, q, Team::kWholeRows ? 0 : slice));
    // Acquire; pairs with the release in Combiner::send(): makes the slice visible.
    return team_.poll([&] { return exec::load_acquire<exec::Scope::kSystem>(signal) == epoch_; },
                      [&] { return missing(token, q, exec::load_acquire<exec::Scope::kSystem>(signal)); });
  }
  MOEWAY_FN exec::Missing missing(int64_t token, int32_t q, uint64_t seen) const {
    const auto* experts = round_.template at<const int32_t>(round_.workspace.topk_idx(parity_of(epoch_), token));
    return {{exec::Awaited::kResult, sender_of(&shape_, experts, q), token}, epoch_, seen};
  }

  const Team& team_;
  const CombineArgs& args_;
  const Round& round_;
  const layout::Shape& shape_;
  std::byte* const heap_;
  const uint64_t epoch_;
  const Combiner<Config, Team, Peers> combiner_;
  const bool own_direct_;
};

template <class Config, class Team, class Peers>
MOEWAY_FN bool recv_results(const Team& team, const CombineArgs& args, const Peers& peers,
                            const Arrivals<Team>& arrivals, bool own_direct) {
  const ResultReceiver<Config, Team, Peers> receiver(team, args, peers, arrivals.epoch, own_direct);
  uint32_t num = 0;
  const bool come = for_each_slice(team, args, 0, arrivals.num_tokens(parity_of(arrivals.epoch)),
                                   [&](int64_t token, int slice) { return receiver.recv(token, slice, &num); });
  count_results(team, args.round, args.round.rank, num);
  return come;
}

template <class Config, class Team, class Peers>
MOEWAY_FN void combine_recv(const Team& team, const CombineArgs& args, const Peers& peers) {
  team.begin();
  const auto& warp = team.warp();
  recv_results<Config>(warp, args, peers, Arrivals(warp, args.round, args.round.epoch(team)), false);
}

// Both halves in one launch: one half of a team returns what others sent, the other adds up its own tokens meanwhile. Not with
// replicas.
template <class Config, class Team, class Peers>
MOEWAY_FN void combine(const Team& team, const CombineArgs& args, const Peers& peers) {
  team.begin();
  const uint64_t epoch = args.round.epoch(team);
  team.both(
      [&](const auto& half) {
        const auto& warp = half.warp();
        send_results<Config>(warp, args, peers, Arrivals(warp, args.round, epoch), true);
        return true;
      },
      [&](const auto& half) {
        const auto& warp = half.warp();
        return recv_results<Config>(warp, args, peers, Arrivals(warp, args.round, epoch), true);
      });
}

}  // namespace moeway::kernels::direct
