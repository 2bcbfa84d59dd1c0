// combine_recv of the direct protocol (docs/protocols/direct.md): waits for the results of each own token and adds
// them.
#pragma once

#include <cstdint>

#include "kernels/direct/accumulate.h"
#include "kernels/direct/combine_args.h"
#include "kernels/direct/combine_send.h"

namespace moeway::kernels::direct {

// The lowest rank above `after` that owns one of a token's experts; the number of ranks if there is none.
MOEWAY_FN int32_t next_owner(const layout::Shape& shape, const int32_t* experts, int32_t after) {
  int32_t next = shape.num_ranks();
  for (int32_t k = 0; k < shape.topk; ++k) {
    const int32_t owner = experts[k] < 0 ? -1 : shape.experts.owner(experts[k]);
    if (owner > after && owner < next) next = owner;
  }
  return next;
}

// False if the launch must end.
template <class Team, class Peers>
MOEWAY_FN bool wait_result(const Team& team, const Round& round, const Peers& peers, uint64_t epoch, int32_t peer,
                           int64_t token, int32_t q) {
  const auto* signal =
      reinterpret_cast<const uint64_t*>(peers.heap(round.rank) + round.heap.result_signal(parity_of(epoch), token, q));
  // Acquire; makes the result visible.
  return team.wait({exec::Awaited::kResult, peer, token}, epoch,
                   [&] { return exec::load_acquire<exec::Scope::kSystem>(signal); });
}

// Waits for all results of a token. How many there are: K when they come per route (those without an expert are not
// waited for), else the number of ranks that own its experts. -1 if the launch must end.
template <class Team, class Peers>
MOEWAY_FN int32_t wait_results(const Team& team, const Round& round, const Peers& peers, uint64_t epoch,
                               const int32_t* experts, int64_t token) {
  const layout::Shape& shape = round.shape();
  if (shape.results == layout::Results::kPerRoute) {
    for (int32_t k = 0; k < shape.topk; ++k) {
      if (experts[k] < 0) continue;
      if (!wait_result(team, round, peers, epoch, shape.experts.owner(experts[k]), token, k)) return -1;
    }
    return shape.topk;
  }
  int32_t q = 0;
  for (int32_t peer = next_owner(shape, experts, -1); peer < shape.num_ranks();
       peer = next_owner(shape, experts, peer)) {
    if (!wait_result(team, round, peers, epoch, peer, token, q++)) return -1;
  }
  return q;
}

template <class Config, class Team, class Peers>
MOEWAY_FN void combine_recv(const Team& team, const CombineArgs& args, const Peers& peers) {
  using Out = typename Config::Out;
  using Row = typename Config::Row;
  const Round& round = args.round;
  const layout::Shape& shape = round.shape();
  const uint64_t epoch = round.epoch(team);
  const int32_t num_tokens = *round.at<const int32_t>(round.workspace.num_tokens(parity_of(epoch)));
  for (int64_t token = team.id(); token < num_tokens; token += team.count()) {
    const auto* experts = round.at<const int32_t>(round.workspace.topk_idx(parity_of(epoch), token));
    const int32_t num_results = wait_results(team, round, peers, epoch, experts, token);
    if (num_results < 0) return;
    auto* y = reinterpret_cast<Out*>(args.y.row(token));
    const std::byte* heap = peers.heap(round.rank);
    const auto result = [&](int32_t q) -> const void* { return heap + round.heap.result(parity_of(epoch), token, q); };
    const auto one = [](int32_t) { return 1.0f; };
    switch (shape.results) {
      case layout::Results::kReduced:
        sum_rows<Out>(team, y, args.hidden, num_results, result, one);
        break;
      case layout::Results::kPerRank:
        sum_rows<Row>(team, y, args.hidden, num_results, result, one);
        break;
      case layout::Results::kPerRoute:
        sum_rows<Row>(
            team, y, args.hidden, num_results, [&](int32_t k) { return experts[k] < 0 ? nullptr : result(k); },
            [&](int32_t k) { return *reinterpret_cast<const float*>(args.topk_weights.at(token, k)); });
        break;
    }
  }
}

// Both halves in one launch.
template <class Config, class Team, class Peers>
MOEWAY_FN void combine(const Team& team, const CombineArgs& args, const Peers& peers) {
  combine_send<Config>(team, args, peers);
  combine_recv<Config>(team, args, peers);
}

}  // namespace moeway::kernels::direct
