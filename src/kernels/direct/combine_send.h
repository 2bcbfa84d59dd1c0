// combine_send of the direct protocol (docs/protocols/direct.md): what the experts made of each received token goes
// back to the token's owner. It waits for nothing.
#pragma once

#include <cstdint>

#include "kernels/direct/accumulate.h"
#include "kernels/direct/combine_args.h"

namespace moeway::kernels::direct {

// Writes result `q` of the owner's token with `write(destination)`, then signals it.
template <class Team, class Peers, class Write>
MOEWAY_FN void send_result(const Team& team, const Round& round, const Peers& peers, uint64_t epoch, int32_t owner,
                           int32_t token, int32_t q, Write write) {
  std::byte* heap = peers.heap(owner);
  write(heap + round.heap.result(parity_of(epoch), token, q));
  team.once([&] {
    // Release; pairs with the acquire of this signal in combine_recv: the result comes before it.
    exec::store_release<exec::Scope::kSystem>(
        reinterpret_cast<uint64_t*>(heap + round.heap.result_signal(parity_of(epoch), token, q)), epoch);
  });
}

template <class Config, class Team, class Peers>
MOEWAY_FN void return_token(const Team& team, const CombineArgs& args, const Peers& peers, uint64_t epoch, int32_t src,
                            int64_t index) {
  const Round& round = args.round;
  const layout::Shape& shape = round.shape();
  const auto* memory = round.at<const std::byte>(round.workspace.received(parity_of(epoch), src, index));
  const auto* received = reinterpret_cast<const layout::ReceivedToken*>(memory);
  const auto* places = reinterpret_cast<const layout::RowPlace*>(memory + sizeof(layout::ReceivedToken));
  switch (shape.results) {
    case layout::Results::kReduced:
      send_result(team, round, peers, epoch, src, received->token, received->result_index, [&](std::byte* result) {
        sum_rows<typename Config::Row>(
            team, reinterpret_cast<typename Config::Out*>(result), args.hidden, received->num_routes,
            [&](int32_t j) { return static_cast<const void*>(args.rows.row(places[j].local_expert, places[j].row)); },
            [&](int32_t j) { return places[j].weight; });
      });
      break;
    case layout::Results::kPerRoute:
      for (int32_t j = 0; j < received->num_routes; ++j) {
        send_result(team, round, peers, epoch, src, received->token, places[j].k, [&](std::byte* result) {
          team.copy(result, args.rows.row(places[j].local_expert, places[j].row), shape.result_bytes);
        });
      }
      break;
    case layout::Results::kPerRank:
      send_result(team, round, peers, epoch, src, received->token, received->result_index, [&](std::byte* result) {
        team.copy(result, args.rows.row(0, int64_t{src} * shape.max_tokens + received->token), shape.result_bytes);
      });
      break;
  }
}

template <class Config, class Team, class Peers>
MOEWAY_FN void combine_send(const Team& team, const CombineArgs& args, const Peers& peers) {
  const Round& round = args.round;
  const layout::Shape& shape = round.shape();
  const uint64_t epoch = round.epoch(team);
  const auto* num_received = round.at<const uint32_t>(round.workspace.num_received(parity_of(epoch), 0));
  int64_t num_before = 0;
  uint64_t num_results = 0;
  for (int32_t step = 0; step < shape.num_ranks(); ++step) {
    const int32_t src = (round.rank + step) % shape.num_ranks();
    const int64_t num_tokens = num_received[src];
    for (int64_t i = first_share(num_before, team.id(), team.count()); i < num_tokens; i += team.count()) {
      return_token<Config>(team, args, peers, epoch, src, i);
      const auto* received = round.at<const layout::ReceivedToken>(round.workspace.received(parity_of(epoch), src, i));
      num_results += shape.results == layout::Results::kPerRoute ? static_cast<uint64_t>(received->num_routes) : 1;
    }
    num_before += num_tokens;
  }
  team.once([&] { exec::add_relaxed<exec::Scope::kDevice>(&round.counters()->results_sent, num_results); });
}

}  // namespace moeway::kernels::direct
