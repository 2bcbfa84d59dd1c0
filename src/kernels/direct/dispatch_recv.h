// dispatch_recv of the direct protocol (docs/protocols/direct.md): the counts of all sources give every row its place;
// then each received token is copied to its rows, in whatever order tokens come.
#pragma once

#include <cstdint>

#include "kernels/direct/dispatch_args.h"
#include "kernels/direct/dispatch_send.h"

namespace moeway::kernels::direct {

// What a team knows of the counts, in its scratch.
struct RecvScratch {
  int64_t* first_row;   // [L]: of each expert, as row_place() counts rows.
  uint32_t* num_rows;   // [L]: of each expert.
  uint32_t* first_of;   // [W, L]: the first row of a source among the expert's.
  uint32_t* num_slots;  // [W]: tokens from each source.

  static MOEWAY_FN int64_t bytes(const layout::Experts& experts) {
    const int64_t local = experts.max_local();
    return 8 * local + 4 * local + 4 * local * experts.num_ranks + 4 * int64_t{experts.num_ranks};
  }
  MOEWAY_FN RecvScratch(std::byte* memory, const layout::Experts& experts, int32_t num_local)
      : first_row(reinterpret_cast<int64_t*>(memory)),
        num_rows(reinterpret_cast<uint32_t*>(first_row + num_local)),
        first_of(num_rows + num_local),
        num_slots(first_of + int64_t{num_local} * experts.num_ranks) {}
};

MOEWAY_FN exec::Failure corrupt(exec::Awaited what, int32_t src, int64_t index, int64_t limit, int64_t seen) {
  return {exec::FailureKind::kCorrupt, {what, src, index}, static_cast<uint64_t>(limit), static_cast<uint64_t>(seen)};
}

// Waits for the counts of all sources. False if the launch must end.
template <class Team, class Peers>
MOEWAY_FN bool recv_counts(const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                           const RecvScratch& scratch, int32_t num_local) {
  const Round& round = args.round;
  team.lanes(num_local, [&](int64_t e) { scratch.num_rows[e] = 0; });
  for (int32_t src = 0; src < round.shape().num_ranks(); ++src) {
    const std::byte* counts = peers.heap(round.rank) + round.heap.counts(parity_of(epoch), src);
    const auto* head = reinterpret_cast<const layout::CountsHead*>(counts);
    const auto* rows = reinterpret_cast<const uint32_t*>(counts + sizeof(layout::CountsHead));
    // Acquire; makes the source's counts visible, and that the source has finished reading what this rank
    // wrote there in the epoch before last.
    const bool here = team.wait({exec::Awaited::kCounts, src, 0}, epoch,
                                [&] { return exec::load_acquire<exec::Scope::kSystem>(&head->signal); });
    if (!here) return false;
    const uint32_t num_slots = head->num_slots;
    if (num_slots > static_cast<uint32_t>(round.shape().max_tokens)) {
      team.fail(corrupt(exec::Awaited::kCounts, src, 0, round.shape().max_tokens, num_slots));
      return false;
    }
    // What a peer says is checked before it becomes an address, and is not read from its memory again after that.
    const int64_t most_rows = int64_t{num_slots} * round.shape().topk;
    const int64_t most_of_expert = args.distinct_experts ? num_slots : most_rows;
    const int64_t num_rows = team.sum(num_local, [&](int64_t e) {
      const uint32_t count = rows[e];
      scratch.first_of[int64_t{src} * num_local + e] = count;
      return count <= most_of_expert ? int64_t{count} : most_rows + 1;
    });
    if (num_rows > most_rows) {
      team.fail(corrupt(exec::Awaited::kCounts, src, 0, most_rows + 1, num_rows));
      return false;
    }
    // The same lane handles an expert for every source, so nothing must be waited for in between.
    team.lanes(num_local, [&](int64_t e) {
      uint32_t& first_of = scratch.first_of[int64_t{src} * num_local + e];
      const uint32_t count = first_of;
      first_of = scratch.num_rows[e];
      scratch.num_rows[e] += count;
    });
    team.once([&] { scratch.num_slots[src] = num_slots; });
  }
  team.once([&] {
    int64_t next = 0;
    for (int32_t e = 0; e < num_local; ++e) {
      const bool padded = round.shape().rows == layout::Rows::kPadded;
      scratch.first_row[e] = padded ? e * args.expert_capacity : next;
      next = layout::round_up(next + scratch.num_rows[e], args.alignment);
    }
  });
  return true;
}

// Tells the caller and the later phases what has come.
template <class Team>
MOEWAY_FN void publish_counts(const Team& team, const DispatchArgs& args, uint64_t epoch, const RecvScratch& scratch,
                              int32_t num_local) {
  const Round& round = args.round;
  team.lanes(num_local, [&](int64_t e) {
    args.num_rows[e * args.num_rows_stride] = static_cast<int32_t>(scratch.num_rows[e]);
    if (args.first_row != nullptr) args.first_row[e * args.first_row_stride] = scratch.first_row[e];
  });
  auto* num_received = round.at<uint32_t>(round.workspace.num_received(parity_of(epoch), 0));
  team.lanes(round.shape().num_ranks(), [&](int64_t src) { num_received[src] = scratch.num_slots[src]; });
  const uint64_t rows = team.sum(num_local, [&](int64_t e) { return uint64_t{scratch.num_rows[e]}; });
  team.once([&] { exec::add_relaxed<exec::Scope::kDevice>(&round.counters()->rows_received, rows); });
}

// Rows of token_major from `begin` up to `end` of a source's, which hold no token.
template <class Team>
MOEWAY_FN void clear_rows(const Team& team, const DispatchArgs& args, int64_t first, int64_t begin, int64_t end) {
  const int32_t topk = args.round.shape().topk;
  team.lanes((end - begin) * topk, [&](int64_t i) {
    const int64_t row = first + begin + i / topk;
    *reinterpret_cast<int32_t*>(args.out_topk_idx.at(row, i % topk)) = -1;
    *reinterpret_cast<float*>(args.out_topk_weights.at(row, i % topk)) = 0.0f;
  });
}

// A source's token, once it has come.
struct Arrival {
  int32_t src;
  int64_t index;             // Among those that the source sends here.
  layout::TokenHeader head;  // A copy, checked.
  const layout::Route* routes;
  const std::byte* payload;
};

// Waits for the `index`-th token of `src`. False if the launch must end.
template <class Team, class Peers>
MOEWAY_FN bool recv_header(const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch, int32_t src,
                           int64_t index, Arrival* arrival) {
  const Round& round = args.round;
  const std::byte* heap = peers.heap(round.rank);
  const std::byte* header = heap + round.heap.header(parity_of(epoch), src, index);
  const auto* head = reinterpret_cast<const layout::TokenHeader*>(header);
  // Acquire; makes the header and the token's payload visible.
  const bool here = team.wait({exec::Awaited::kHeader, src, index}, epoch,
                              [&] { return exec::load_acquire<exec::Scope::kSystem>(&head->signal); });
  if (!here) return false;
  const layout::Shape& shape = round.shape();
  const layout::TokenHeader copy = team.once([&] { return *head; });
  if (copy.token < 0 || copy.token >= shape.max_tokens || copy.num_routes < 1 || copy.num_routes > shape.topk ||
      copy.result_index < 0 || copy.result_index >= shape.results_per_token()) {
    team.fail(corrupt(exec::Awaited::kHeader, src, index, shape.max_tokens, copy.token));
    return false;
  }
  *arrival = {src, index, copy, reinterpret_cast<const layout::Route*>(header + sizeof(layout::TokenHeader)),
              heap + round.heap.payload(parity_of(epoch), src, copy.token)};
  return true;
}

// Copies a token to its rows of its experts and keeps where they are. False if the launch must end.
template <class Team>
MOEWAY_FN bool place_rows(const Team& team, const DispatchArgs& args, const RecvScratch& scratch,
                          const Arrival& arrival, layout::RowPlace* places, int32_t num_local) {
  const layout::Shape& shape = args.round.shape();
  for (int32_t j = 0; j < arrival.head.num_routes; ++j) {
    const layout::Route route = team.once([&] { return arrival.routes[j]; });
    const bool known =
        route.local_expert >= 0 && route.local_expert < num_local && route.k >= 0 && route.k < shape.topk;
    const int64_t row =
        known ? int64_t{scratch.first_of[int64_t{arrival.src} * num_local + route.local_expert]} + route.position : 0;
    if (!known || row >= scratch.num_rows[route.local_expert]) {
      team.fail(corrupt(exec::Awaited::kHeader, arrival.src, arrival.index, num_local, route.local_expert));
      return false;
    }
    const int64_t place = shape.rows == layout::Rows::kPadded ? row : scratch.first_row[route.local_expert] + row;
    team.copy(args.out.row(route.local_expert, place), arrival.payload, shape.row_bytes);
    if (shape.scales_bytes > 0) {
      team.copy(args.out_scales.row(route.local_expert, place), arrival.payload + args.round.heap.scales_offset(),
                shape.scales_bytes);
    }
    team.once([&] {
      places[j] = {route.local_expert, route.k, place, route.weight, 0};
      if (!args.row_source.given()) return;
      auto* source = reinterpret_cast<int32_t*>(args.row_source.row(route.local_expert, place));
      source[0] = arrival.src;
      source[1] = arrival.head.token;
      source[2] = route.k;
    });
  }
  return true;
}

// token_major: the token's one row, and which of its routes are for this rank. Rows between the token before
// (`previous`) and this one, and behind the last, hold no token.
template <class Team>
MOEWAY_FN void place_token(const Team& team, const DispatchArgs& args, const Arrival& arrival, int32_t previous,
                           bool last, int32_t num_local) {
  const layout::Shape& shape = args.round.shape();
  const int64_t first = int64_t{arrival.src} * shape.max_tokens;
  const int32_t token = arrival.head.token;
  if (args.out.given()) team.copy(args.out.row(0, first + token), arrival.payload, shape.row_bytes);
  if (args.out_scales.given()) {
    team.copy(args.out_scales.row(0, first + token), arrival.payload + args.round.heap.scales_offset(),
              shape.scales_bytes);
  }
  clear_rows(team, args, first, previous + 1, token + 1);
  team.sync();
  team.lanes(arrival.head.num_routes, [&](int64_t j) {
    const layout::Route route = arrival.routes[j];
    if (route.k < 0 || route.k >= shape.topk || route.local_expert < 0 || route.local_expert >= num_local) return;
    *reinterpret_cast<int32_t*>(args.out_topk_idx.at(first + token, route.k)) = route.local_expert;
    *reinterpret_cast<float*>(args.out_topk_weights.at(first + token, route.k)) = route.weight;
  });
  if (last) clear_rows(team, args, first, token + 1, shape.max_tokens);
}

// One received token, whole. False if the launch must end.
template <class Team, class Peers>
MOEWAY_FN bool recv_token(const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                          const RecvScratch& scratch, int32_t num_local, int32_t src, int64_t index) {
  const Round& round = args.round;
  Arrival arrival;
  if (!recv_header(team, args, peers, epoch, src, index, &arrival)) return false;
  std::byte* memory = round.at<std::byte>(round.workspace.received(parity_of(epoch), src, index));
  if (round.shape().rows == layout::Rows::kTokenMajor) {
    Arrival before;
    if (index > 0 && !recv_header(team, args, peers, epoch, src, index - 1, &before)) return false;
    place_token(team, args, arrival, index > 0 ? before.head.token : -1, index + 1 == scratch.num_slots[src],
                num_local);
  } else {
    auto* places = reinterpret_cast<layout::RowPlace*>(memory + sizeof(layout::ReceivedToken));
    if (!place_rows(team, args, scratch, arrival, places, num_local)) return false;
  }
  team.once([&] {
    *reinterpret_cast<layout::ReceivedToken*>(memory) = {arrival.head.token, arrival.head.result_index,
                                                         arrival.head.num_routes, 0};
  });
  return true;
}

template <class Team, class Peers>
MOEWAY_FN void dispatch_recv(const Team& team, const DispatchArgs& args, const Peers& peers) {
  const Round& round = args.round;
  const layout::Shape& shape = round.shape();
  const uint64_t epoch = round.epoch(team);
  const int32_t num_local = shape.experts.count(round.rank);
  const RecvScratch scratch(team.scratch(), shape.experts, num_local);
  if (!recv_counts(team, args, peers, epoch, scratch, num_local)) return;
  if (team.id() == 0) publish_counts(team, args, epoch, scratch, num_local);

  int64_t num_before = 0;
  for (int32_t step = 0; step < shape.num_ranks(); ++step) {
    // Every rank starts with another source, so that they do not all wait for the same one.
    const int32_t src = (round.rank + step) % shape.num_ranks();
    const int64_t num_slots = scratch.num_slots[src];
    if (num_slots == 0 && shape.rows == layout::Rows::kTokenMajor && src % team.count() == team.id()) {
      clear_rows(team, args, int64_t{src} * shape.max_tokens, 0, shape.max_tokens);
    }
    for (int64_t i = first_share(num_before, team.id(), team.count()); i < num_slots; i += team.count()) {
      if (!recv_token(team, args, peers, epoch, scratch, num_local, src, i)) return;
    }
    num_before += num_slots;
  }
}

// Both halves in one launch.
template <class Team, class Peers>
MOEWAY_FN void dispatch(const Team& team, const DispatchArgs& args, const Peers& peers) {
  dispatch_send(team, args, peers);
  dispatch_recv(team, args, peers);
}

// Scratch of a team for any of the dispatch kernels.
MOEWAY_FN int64_t dispatch_scratch_bytes(const layout::Experts& experts) {
  const int64_t send = SendScratch::bytes(experts), recv = RecvScratch::bytes(experts);
  return send > recv ? send : recv;
}

}  // namespace moeway::kernels::direct
