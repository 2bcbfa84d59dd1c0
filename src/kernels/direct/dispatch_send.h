// dispatch_send of the direct protocol (docs/protocols/direct.md): every rank tells every rank how many rows it sends
// to each expert there, and writes each of its tokens once to each rank that owns one of the token's experts. It waits
// for nothing.
#pragma once

#include <cstdint>

#include "kernels/direct/dispatch_args.h"

namespace moeway::kernels::direct {

// Counters of a team, in its scratch.
struct SendScratch {
  uint32_t* rows;      // [E]: routes to each expert before the team's next token.
  uint32_t* slots;     // [W]: tokens to each rank before the team's next token.
  uint32_t* all_rows;  // The same over all tokens.
  uint32_t* all_slots;

  static MOEWAY_FN int64_t bytes(const layout::Experts& experts) {
    return int64_t{2} * 4 * (int64_t{experts.num_experts} + experts.num_ranks);
  }
  MOEWAY_FN SendScratch(std::byte* memory, const layout::Experts& experts)
      : rows(reinterpret_cast<uint32_t*>(memory)),
        slots(rows + experts.num_experts),
        all_rows(slots + experts.num_ranks),
        all_slots(all_rows + experts.num_experts) {}
};

// Adds the routes of tokens begin <= t < end.
template <class Team>
MOEWAY_FN void count_routes(const Team& team, const DispatchArgs& args, int64_t begin, int64_t end, uint32_t* rows,
                            uint32_t* slots) {
  const int32_t topk = args.round.shape().topk;
  team.lanes((end - begin) * topk, [&](int64_t i) {
    const int64_t token = begin + i / topk;
    const int64_t k = i % topk;
    const int32_t expert = args.expert(token, k);
    if (expert < 0) return;
    team.count_into(&rows[expert], 1u);
    const int32_t dst = args.owner(expert);
    if (args.first_to_rank(token, k, dst)) team.count_into(&slots[dst], 1u);
  });
}

// Tells the ranks of this team's share how much comes from here, be it nothing. This is also the credit that lets them
// write this rank's regions of the next epoch again.
template <class Team, class Peers>
MOEWAY_FN void send_counts(const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                           const SendScratch& scratch) {
  const Round& round = args.round;
  const layout::Experts& experts = round.shape().experts;
  for (int32_t dst = team.id(); dst < experts.num_ranks; dst += team.count()) {
    std::byte* counts = peers.heap(dst) + round.heap.counts(parity_of(epoch), round.rank);
    auto* head = reinterpret_cast<layout::CountsHead*>(counts);
    auto* rows = reinterpret_cast<uint32_t*>(counts + sizeof(layout::CountsHead));
    const int32_t first = experts.first(dst);
    team.lanes(experts.count(dst), [&](int64_t e) { rows[e] = scratch.all_rows[first + e]; });
    team.once([&] {
      head->num_slots = scratch.all_slots[dst];
      // Release; pairs with the acquire of this signal in dispatch_recv: the counts come before it, and so does all
      // that this rank has read and written of earlier epochs (the credit).
      exec::store_release<exec::Scope::kSystem>(&head->signal, epoch);
      exec::add_relaxed<exec::Scope::kDevice>(&round.counters()->tokens_sent, uint64_t{scratch.all_slots[dst]});
    });
    const uint64_t num_routes =
        team.sum(experts.count(dst), [&](int64_t e) { return uint64_t{scratch.all_rows[first + e]}; });
    team.once([&] { exec::add_relaxed<exec::Scope::kDevice>(&round.counters()->routes_sent, num_routes); });
  }
}

// Keeps the token's experts for combine, and tells of routes that cannot be.
template <class Team>
MOEWAY_FN void keep_routes(const Team& team, const DispatchArgs& args, int32_t* experts, int64_t token) {
  const int32_t topk = args.round.shape().topk;
  team.lanes(topk, [&](int64_t k) {
    experts[k] = args.expert(token, k);
    if (experts[k] >= 0 || args.topk_idx.at(token, k) == -1) return;
    // Relaxed: the host reads it after the launch.
    exec::min_relaxed<exec::Scope::kDevice>(args.bad_route, static_cast<uint64_t>(token * topk + k));
  });
}

// Where among the token's results the sum of rank `dst` belongs: behind those of lower ranks.
MOEWAY_FN int32_t result_index(const DispatchArgs& args, const int32_t* experts, int64_t token, int32_t dst) {
  int32_t index = 0;
  for (int64_t j = 0; j < args.round.shape().topk; ++j) {
    const int32_t other_dst = experts[j] < 0 ? dst : args.owner(experts[j]);
    index += other_dst < dst && args.first_to_rank(token, j, other_dst);
  }
  return index;
}

// What a token's destinations must know of it, except for the signal. `experts` as keep_routes() left them.
template <class Team, class Peers>
MOEWAY_FN void write_headers(const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                             const SendScratch& scratch, const int32_t* experts, int64_t token) {
  const Round& round = args.round;
  const int32_t topk = round.shape().topk;
  team.lanes(topk, [&](int64_t k) {
    const int32_t expert = experts[k];
    if (expert < 0) return;
    const int32_t dst = args.owner(expert);
    int32_t entry = 0, num_routes = 0;
    uint32_t repeats = 0;
    for (int64_t j = 0; j < topk; ++j) {
      const bool same_rank = experts[j] >= 0 && args.owner(experts[j]) == dst;
      entry += j < k && same_rank;
      repeats += j < k && experts[j] == expert;
      num_routes += same_rank;
    }
    std::byte* header = peers.heap(dst) + round.heap.header(parity_of(epoch), round.rank, scratch.slots[dst]);
    auto* routes = reinterpret_cast<layout::Route*>(header + sizeof(layout::TokenHeader));
    const bool weighted = args.topk_weights.data != nullptr;
    const float weight = weighted ? *reinterpret_cast<const float*>(args.topk_weights.at(token, k)) : 0.0f;
    routes[entry] = {expert - round.shape().experts.first(dst), scratch.rows[expert] + repeats, static_cast<int32_t>(k),
                     weight};
    if (entry == 0) {
      auto* head = reinterpret_cast<layout::TokenHeader*>(header);
      head->token = static_cast<int32_t>(token);
      head->result_index = result_index(args, experts, token, dst);
      head->num_routes = num_routes;
    }
  });
}

template <class Team, class Peers>
MOEWAY_FN void send_token(const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                          const SendScratch& scratch, int64_t token) {
  const Round& round = args.round;
  const int32_t topk = round.shape().topk;
  auto* experts = round.at<int32_t>(round.workspace.topk_idx(parity_of(epoch), token));
  keep_routes(team, args, experts, token);
  team.sync();
  // Payload first: where it goes follows from the token's number alone.
  for (int32_t k = 0; k < topk; ++k) {
    if (experts[k] < 0) continue;
    const int32_t dst = args.owner(experts[k]);
    if (!args.first_to_rank(token, k, dst)) continue;
    std::byte* payload = peers.heap(dst) + round.heap.payload(parity_of(epoch), round.rank, token);
    copy_row(team, payload, args.x, token);
    if (args.scales.columns > 0) copy_row(team, payload + round.heap.scales_offset(), args.scales, token);
  }
  write_headers(team, args, peers, epoch, scratch, experts, token);
  team.sync();
  team.lanes(topk, [&](int64_t k) {
    if (experts[k] < 0) return;
    const int32_t dst = args.owner(experts[k]);
    if (!args.first_to_rank(token, k, dst)) return;
    auto* head = reinterpret_cast<layout::TokenHeader*>(
        peers.heap(dst) + round.heap.header(parity_of(epoch), round.rank, scratch.slots[dst]));
    // Release; pairs with the acquire of this signal in dispatch_recv: payload and header come before it, those that
    // other lanes wrote by the sync() above.
    exec::store_release<exec::Scope::kSystem>(&head->signal, epoch);
  });
  team.sync();  // The counters are read above and change below.
  count_routes(team, args, token, token + 1, scratch.rows, scratch.slots);
  team.sync();
}

template <class Team, class Peers>
MOEWAY_FN void dispatch_send(const Team& team, const DispatchArgs& args, const Peers& peers) {
  const Round& round = args.round;
  const layout::Experts& experts = round.shape().experts;
  const uint64_t epoch = round.last_epoch(team) + 1;
  const SendScratch scratch(team.scratch(), experts);
  // Consecutive tokens for a team: it counts the routes before them once and then knows every position by itself.
  const int64_t num_tokens = args.num_tokens;
  const int64_t begin = num_tokens * team.id() / team.count();
  const int64_t end = num_tokens * (team.id() + 1) / team.count();
  const int64_t num_counters = int64_t{experts.num_experts} + experts.num_ranks;
  team.lanes(num_counters, [&](int64_t i) { scratch.rows[i] = 0; });
  team.sync();
  count_routes(team, args, 0, begin, scratch.rows, scratch.slots);
  team.sync();
  if (team.id() < experts.num_ranks) {
    team.lanes(num_counters, [&](int64_t i) { scratch.all_rows[i] = scratch.rows[i]; });
    team.sync();
    count_routes(team, args, begin, num_tokens, scratch.all_rows, scratch.all_slots);
    team.sync();
    send_counts(team, args, peers, epoch, scratch);
  }
  for (int64_t token = begin; token < end; ++token) send_token(team, args, peers, epoch, scratch, token);
  if (team.id() == 0) {
    team.once([&] { *round.at<int32_t>(round.workspace.num_tokens(parity_of(epoch))) = args.num_tokens; });
  }
  round.set_last_epoch(team, epoch);
}

}  // namespace moeway::kernels::direct
