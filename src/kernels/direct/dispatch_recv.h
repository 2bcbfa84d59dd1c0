// dispatch_recv of the direct protocol (docs/protocols/direct.md): waits for the tokens that the counts announce and
// copies each to its rows.
#pragma once

#include <cstdint>

#include "kernels/direct/counts.h"
#include "kernels/direct/dispatch_args.h"
#include "kernels/direct/dispatch_scratch.h"

namespace moeway::kernels::direct {

// The header of a token: its head, and one of its routes a value.
struct HeaderEntry {
  exec::Unit head;
  exec::Unit route;
};

template <class Config, class Team, class Peers>
class TokenReceiver {
 public:
  using Header = typename Team::template Spread<HeaderEntry>;
  using Places = typename Team::template Spread<layout::RowPlace>;

  // After a barrier behind Counts::recv().
  MOEWAY_FN TokenReceiver(const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                          const DispatchScratch& scratch)
      : team_(team),
        args_(args),
        round_(args.round),
        shape_(args.round.shape()),
        heap_(peers.heap(args.round.rank)),
        epoch_(epoch),
        scratch_(scratch),
        bits_(args.round.heap.route_bits),
        num_local_(args.round.heap.owners.count(args.round.rank)) {}

  // Waits for the `index`-th token of `src`, copies it to its rows and keeps where they are. False if the launch must
  // end.
  MOEWAY_FN bool recv(int32_t src, int64_t index) const {
    Header header;
    if (!recv_header(src, index, 0, exec::spread_size(shape_.topk), &header)) return false;
    const layout::TokenHead head = layout::TokenHead::unpack(header.get(0).head);
    if (!possible(head)) {
      team_.fail(corrupt(exec::Awaited::kHeader, src, index, shape_.max_tokens, head.token));
      return false;
    }
    std::byte* memory = record(src, src == round_.rank ? head.token : index);
    bool good = true;
    int32_t num_kept = head.num_routes;
    if constexpr (Config::kTokenMajor) {
      good = recv_token_row(src, index, head, &header);
    } else {
      good = recv_rows(src, index, head, &header, memory, &num_kept);
    }
    if (!good) return false;
    team_.leader([&] {
      *reinterpret_cast<layout::ReceivedToken*>(memory) = {head.token, head.result_index, num_kept, 0};
    });
    return true;
  }

  // One of this rank's own tokens, which its sender has just announced and holds: to its rows here. `hold(chunk)` makes
  // `held` that chunk.
  template <class Hold>
  MOEWAY_FN bool place_own(int64_t token, const typename Team::Held& held, Hold hold) const {
    std::byte* memory = record(round_.rank, token);
    auto* received = reinterpret_cast<layout::ReceivedToken*>(memory);
    auto* kept = reinterpret_cast<layout::RowPlace*>(received + 1);
    const int32_t num_routes = received->num_routes;
    int32_t num_kept = 0;
    MOEWAY_ROLL
    for (int32_t base = 0; base < num_routes; base += exec::kSpread) {
      const int32_t n = exec::spread_size(num_routes - base);
      const Places places = team_.spread(n, [&](int j) {
        const layout::RowPlace& place = kept[base + j];
        return place_of(round_.rank, {place.local_expert, place.k, static_cast<uint32_t>(place.row), place.weight});
      });
      uint32_t dropped;
      if (!placed(round_.rank, token, places, n, &dropped)) return false;  // The routes were changed meanwhile.
      MOEWAY_ROLL
      for (int chunk = 0; chunk < team_.num_chunks(shape_.token()); ++chunk) {
        hold(chunk);
        copy_to_rows(held, places, n, dropped, chunk);
      }
      team_.sync();  // All have read what is replaced.
      num_kept += keep(memory, round_.rank, static_cast<int32_t>(token), num_kept, n, places, dropped);
    }
    if (num_kept != num_routes) team_.leader([&] { received->num_routes = num_kept; });
    return true;
  }

  // token_major: rows of a source that sends nothing.
  MOEWAY_FN void clear_source(int32_t src) const { clear_rows(int64_t{src} * shape_.max_tokens, 0, shape_.max_tokens); }

 private:
  MOEWAY_FN std::byte* record(int32_t src, int64_t index) const {
    return round_.template at<std::byte>(round_.workspace.received(parity_of(epoch_), src, index));
  }

  // Routes base .. base + n - 1 of the header, as far as the token has them.
  MOEWAY_FN bool recv_header(int32_t src, int64_t index, int32_t base, int32_t n, Header* header) const {
    const auto* units = reinterpret_cast<const exec::Unit*>(heap_ + round_.heap.header(parity_of(epoch_), src, index));
    return team_.receive(
        header, n,
        [&](int j) {
          return HeaderEntry{exec::load_tagged(units), exec::load_tagged(units + 1 + base + j)};
        },
        [&](int j, const HeaderEntry& entry) {
          return exec::has_tag(entry.head, epoch_) &&
                 (base + j >= layout::TokenHead::unpack(entry.head).num_routes || exec::has_tag(entry.route, epoch_));
        },
        [&](int) {
          return exec::Missing{{exec::Awaited::kHeader, src, index}, epoch_, exec::tag_of(exec::load_tagged(units))};
        });
  }
  MOEWAY_FN bool possible(const layout::TokenHead& head) const {
    return head.token >= 0 && head.token < shape_.max_tokens && head.num_routes >= 1 &&
           head.num_routes <= shape_.topk && head.result_index < shape_.results_per_token();
  }

  // Where a route's row lies. Without room for it ~row is its number among the expert's; kNoRow if it cannot be at all.
  static constexpr int64_t kNoRow = int64_t{-1} << 62;
  MOEWAY_FN layout::RowPlace place_of(int32_t src, const layout::Route& route) const {
    const bool known = route.local_expert >= 0 && route.local_expert < num_local_ && route.k < shape_.topk;
    int64_t row = kNoRow;
    if (known) {
      row = int64_t{scratch_.first_of[int64_t{src} * num_local_ + route.local_expert]} + route.position;
      if (row >= scratch_.num_rows[route.local_expert]) row = ~row;
    }
    if (row >= 0 && shape_.rows == layout::Rows::kPacked) row += scratch_.first_row[route.local_expert];
    return {row, route.weight, static_cast<uint16_t>(route.local_expert), static_cast<uint16_t>(route.k)};
  }
  // Which of n routes have no room. False if one cannot be: the counts do not know it.
  MOEWAY_FN bool placed(int32_t src, int64_t index, const Places& places, int32_t n, uint32_t* dropped) const {
    *dropped = team_.ballot(n, [&](int j) { return places.mine(j).row < 0; });
    if (*dropped == 0) return true;
    const uint32_t unknown = team_.ballot(n, [&](int j) {
      const layout::RowPlace place = places.mine(j);
      return place.row < 0 && (place.row == kNoRow || ~place.row >= scratch_.num_arrived[place.local_expert]);
    });
    if (unknown == 0) return true;
    team_.fail(corrupt(exec::Awaited::kHeader, src, index, num_local_, places.get(exec::lowest(unknown)).local_expert));
    return false;
  }
  // Where the bytes of a row lie.
  struct Address {
    std::byte* row;
    std::byte* scales;
  };
  MOEWAY_FN void copy_to_rows(const typename Team::Held& held, const Places& places, int32_t n, uint32_t dropped,
                              int chunk) const {
    const auto addresses = team_.spread(n, [&](int j) {
      const layout::RowPlace place = places.mine(j);
      return Address{args_.out.row(place.local_expert, place.row), args_.out_scales.row(place.local_expert, place.row)};
    });
    MOEWAY_ROLL
    for (int32_t j = 0; j < n; ++j) {
      const Address to = addresses.get(j);
      if ((dropped >> j & 1) != 0) continue;
      team_.place(held, row_at(to), args_.whole_rows, chunk);
    }
  }
  MOEWAY_FN exec::TokenBytes row_at(const Address& to) const {
    return {{to.row, shape_.row_bytes, 1, 1}, {to.scales, shape_.scales_bytes, 1, 1}};
  }

  // The rows of a token; sets how many places it has. Routes go kSpread at a time; only the first that many are worked
  // out before the payload comes.
  MOEWAY_FN bool recv_rows(int32_t src, int64_t index, const layout::TokenHead& head, Header* header, std::byte* memory,
                           int32_t* num_kept) const {
    const exec::TokenFormat format = shape_.token();
    const auto at_once = [&](int32_t base) { return exec::spread_size(head.num_routes - base); };
    const auto to_places = [&](int32_t n) {
      return team_.spread(n, [&](int j) { return place_of(src, bits_.unpack(header->mine(j).route)); });
    };
    const Places places = to_places(at_once(0));
    uint32_t dropped;
    if (!placed(src, index, places, at_once(0), &dropped)) return false;
    *num_kept = keep(memory, src, head.token, 0, at_once(0), places, dropped);
    if (!shape_.payload_tells() && !wait_payload(src, head.token)) return false;
    typename Team::Held held;
    MOEWAY_ROLL
    for (int chunk = 0; chunk < team_.num_chunks(format); ++chunk) {
      if (!recv_payload(src, head.token, chunk, &held)) return false;
      copy_to_rows(held, places, at_once(0), dropped, chunk);
      MOEWAY_ROLL
      for (int32_t base = exec::kSpread; base < head.num_routes; base += exec::kSpread) {
        if (!recv_header(src, index, base, at_once(base), header)) return false;
        const Places more = to_places(at_once(base));
        uint32_t no_room;
        if (!placed(src, index, more, at_once(base), &no_room)) return false;
        if (chunk == 0) *num_kept += keep(memory, src, head.token, *num_kept, at_once(base), more, no_room);
        copy_to_rows(held, more, at_once(base), no_room, chunk);
      }
    }
    return true;
  }
  MOEWAY_FN bool recv_payload(int32_t src, int32_t token, int chunk, typename Team::Held* held) const {
    std::byte* slot = heap_ + round_.heap.payload(parity_of(epoch_), src, token);
    if (!shape_.payload_tells()) {
      team_.get(held, slot, shape_.token(), chunk);
      return true;
    }
    return team_.take(held, slot, shape_.token(), scratch_.held, chunk, [&] {
      return exec::Missing{{exec::Awaited::kPayload, src, token}, epoch_, 0};
    });
  }
  MOEWAY_FN bool wait_payload(int32_t src, int32_t token) const {
    const auto* signal =
        reinterpret_cast<const uint64_t*>(heap_ + round_.heap.payload_signal(parity_of(epoch_), src, token));
    // Acquire; pairs with the release in TokenSender::signal(): makes the token's payload visible.
    return team_.poll([&] { return exec::load_acquire<exec::Scope::kSystem>(signal) == epoch_; },
                      [&] {
                        return exec::Missing{{exec::Awaited::kPayload, src, token},
                                             epoch_,
                                             exec::load_acquire<exec::Scope::kSystem>(signal)};
                      });
  }

  // Keeps n places from number `first` on; how many it kept. Where results come back route by route, a dropped one's place
  // tells that it is owed; a sum just does without.
  MOEWAY_FN int32_t keep(std::byte* memory, int32_t src, int32_t token, int32_t first, int32_t n, const Places& places,
                         uint32_t dropped) const {
    auto* kept = reinterpret_cast<layout::RowPlace*>(memory + sizeof(layout::ReceivedToken)) + first;
    const uint32_t left_out = shape_.results == layout::Results::kPerRoute ? 0 : dropped;
    team_.lanes(n, [&](int32_t j) {
      const layout::RowPlace place = places.mine(j);
      if ((left_out >> j & 1) == 0) kept[j - exec::popcount(left_out & exec::below(j))] = place;
      if (!args_.row_source.given() || place.row < 0) return;
      auto* source = reinterpret_cast<int32_t*>(args_.row_source.row(place.local_expert, place.row));
      source[0] = src;
      source[1] = token;
      source[2] = place.k;
    });
    return n - exec::popcount(left_out);
  }

  // token_major: the token's one row, and which of its routes are for this rank. Rows between the token before and this
  // one, and behind the last, hold no token.
  MOEWAY_FN bool recv_token_row(int32_t src, int64_t index, const layout::TokenHead& head, Header* header) const {
    int32_t previous = -1;
    if (index > 0) {
      Header before;
      if (!recv_header(src, index - 1, 0, 1, &before)) return false;
      previous = layout::TokenHead::unpack(before.get(0).head).token;
    }
    if (previous >= head.token) {
      team_.fail(corrupt(exec::Awaited::kHeader, src, index, shape_.max_tokens, head.token));
      return false;
    }
    const int64_t first = int64_t{src} * shape_.max_tokens, row = first + head.token;
    if (!wait_payload(src, head.token)) return false;
    if (args_.out.given()) {
      std::byte* slot = heap_ + round_.heap.payload(parity_of(epoch_), src, head.token);
      typename Team::Held held;
      MOEWAY_ROLL
      for (int chunk = 0; chunk < team_.num_chunks(shape_.token()); ++chunk) {
        team_.get(&held, slot, shape_.token(), chunk);
        team_.place(held, row_at({args_.out.row(0, row), args_.out_scales.row(0, row)}), args_.whole_rows, chunk);
      }
    }
    clear_rows(first, previous + 1, head.token);
    clear_rows(row, 0, 1);
    MOEWAY_ROLL
    for (int32_t base = 0; base < head.num_routes; base += exec::kSpread) {
      const int32_t n = exec::spread_size(head.num_routes - base);
      if (base > 0 && !recv_header(src, index, base, n, header)) return false;
      MOEWAY_ROLL
      for (int32_t j = 0; j < n; ++j) {
        const layout::Route route = bits_.unpack(header->get(j).route);
        if (route.local_expert >= num_local_) continue;
        // The lane of a column is the one that has cleared it.
        team_.lanes(shape_.topk, [&](int32_t k) {
          if (k != route.k) return;
          *reinterpret_cast<int32_t*>(args_.out_topk_idx.at(row, k)) = route.local_expert;
          *reinterpret_cast<float*>(args_.out_topk_weights.at(row, k)) = route.weight;
        });
      }
    }
    if (index + 1 == scratch_.num_slots[src]) clear_rows(first, head.token + 1, shape_.max_tokens);
    return true;
  }
  // Rows first + begin .. first + end - 1 hold no token.
  MOEWAY_FN void clear_rows(int64_t first, int64_t begin, int64_t end) const {
    MOEWAY_ROLL
    for (int64_t row = first + begin; row < first + end; ++row) {
      team_.lanes(shape_.topk, [&](int32_t k) {
        *reinterpret_cast<int32_t*>(args_.out_topk_idx.at(row, k)) = -1;
        *reinterpret_cast<float*>(args_.out_topk_weights.at(row, k)) = 0.0f;
      });
    }
  }

  const Team& team_;
  const DispatchArgs& args_;
  const Round& round_;
  const layout::Shape& shape_;
  std::byte* const heap_;
  const uint64_t epoch_;
  const DispatchScratch& scratch_;
  const layout::RouteBits& bits_;
  const int32_t num_local_;
};

}  // namespace moeway::kernels::direct
