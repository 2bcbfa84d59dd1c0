// dispatch_recv of the direct protocol (docs/protocols/direct.md): waits for the tokens that the counts announce and
// copies each to its rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/direct/counts.h"
#include "kernels/direct/dispatch_args.h"
#include "kernels/direct/dispatch_scratch.h"

namespace moeway::kernels::direct {

// The header of a token: its head, and one of its routes a value. token_major: also the head of the token before, if any.
struct HeaderEntry {
  exec::Unit head;
  exec::Unit route;
};
struct TokenHeaderEntry : HeaderEntry {
  exec::Unit previous;
};

template <class Config, class Team, class Peers>
class TokenReceiver {
 public:
  using Entry = std::conditional_t<Config::kTokenMajor, TokenHeaderEntry, HeaderEntry>;
  using Header = typename Team::template Spread<Entry>;
  using Places = typename Team::template Spread<layout::RowPlace>;

  // After a barrier behind Counts::recv().
  MOEWAY_FN TokenReceiver(Config, const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
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

  // A token whose header has come.
  struct Opened {
    int32_t src, index;
    layout::TokenHead head;
    Header header;
    Places places;
    typename Team::Held held;
    uint32_t dropped;  // Which of the first kSpread routes have no room.
    int32_t num_kept;  // Places that are kept.
  };

  // What the header of the `index`-th token of `src` holds now, for open(): it may not have come, or never come.
  MOEWAY_FN Header look(int32_t src, int32_t index) const {
    return team_.spread(exec::spread_size(shape_.topk), [&](int j) { return entry(src, index, j); });
  }

  // Waits for the header of the `index`-th token of `src`, works out where its rows are and keeps that, and starts to read its
  // payload. False if the launch must end. If `looked`, `header` is what look() found.
  MOEWAY_FN bool open(int32_t src, int32_t index, const Header& header, bool looked, Opened* token) const {
    token->src = src;
    token->index = index;
    token->header = header;
    if (!recv_header(src, index, 0, exec::spread_size(shape_.topk), &token->header, looked)) return false;
    token->head = layout::TokenHead::unpack(token->header.get(0).head);
    const layout::TokenHead& head = token->head;
    // Another team looks at the header before, maybe later: as unsigned, a number that cannot be is none below this token's.
    if (!possible(src, head) || static_cast<uint32_t>(previous(*token)) + 1 > static_cast<uint32_t>(head.token)) {
      team_.fail(corrupt(exec::Awaited::kHeader, src, index, tokens_of<Config>(round_, scratch_, src).end, head.token));
      return false;
    }
    look_at_payload(src, head.token, 0, &token->held);
    token->num_kept = head.num_routes;
    if constexpr (!Config::kTokenMajor) {
      const int32_t n = exec::spread_size(head.num_routes);
      token->places = to_places(src, token->header, n);
      if (!placed(src, index, token->places, n, &token->dropped)) return false;
      token->num_kept = keep(record(*token), src, head.token, 0, n, token->places, token->dropped);
    }
    return true;
  }
  // Waits for the token's payload and copies it to its rows.
  MOEWAY_FN bool finish(Opened* token) const {
    bool come = true;
    if constexpr (Config::kTokenMajor) {
      come = recv_token_row(*token);
    } else {
      come = recv_rows(token);
    }
    if (!come) return false;
    team_.leader([&] {
      *reinterpret_cast<layout::ReceivedToken*>(record(*token)) = {token->head.token, token->head.result_index,
                                                                   token->num_kept, 0};
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
    // As many as there may be, before it is known how many there are.
    const auto read = [&](int32_t base) {
      return team_.spread(exec::spread_size(shape_.topk - base), [&](int j) { return kept[base + j]; });
    };
    Places given = read(0);
    const int32_t num_routes = received->num_routes;
    int32_t num_kept = 0;
    MOEWAY_ROLL
    for (int32_t base = 0; base == 0 || unusual<Config>(base < num_routes); base += exec::kSpread) {
      if (unusual<Config>(base > 0)) given = read(base);
      const int32_t n = exec::spread_size(num_routes - base);
      const Places places = team_.spread(n, [&](int j) {
        const layout::RowPlace place = given.mine(j);
        return place_of(round_.rank, {place.local_expert, place.k, static_cast<uint32_t>(place.row), place.weight});
      });
      uint32_t dropped;
      if (!placed(round_.rank, token, places, n, &dropped)) return false;  // The routes were changed meanwhile.
      MOEWAY_ROLL
      for (int chunk = 0; chunk == 0 || unusual<Config>(chunk < team_.num_chunks(shape_.token())); ++chunk) {
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
  MOEWAY_FN void clear_source(int32_t src) const {
    const layout::TokenRange tokens = tokens_of<Config>(round_, scratch_, src);
    clear_rows(first_token(src), tokens.begin, tokens.end);
  }

 private:
  MOEWAY_FN bool whole_rows() const { return !unusual<Config>(!args_.whole_rows); }
  MOEWAY_FN std::byte* record(int32_t src, int64_t index) const {
    return round_.template at<std::byte>(round_.workspace.received(parity_of(epoch_), src, index));
  }
  MOEWAY_FN std::byte* record(const Opened& token) const {
    const bool own = token.src == round_.rank && !unusual<Config>(shape_.replicated());
    return record(token.src, own ? token.head.token : token.index);
  }

  MOEWAY_FN const exec::Unit* units(int32_t src, int64_t index) const {
    return reinterpret_cast<const exec::Unit*>(heap_ + round_.heap.header(parity_of(epoch_), src, index));
  }
  MOEWAY_FN Entry entry(int32_t src, int32_t index, int32_t route) const {
    const exec::Unit* header = units(src, index);
    if constexpr (Config::kTokenMajor) {
      return {{exec::load_tagged(header), exec::load_tagged(header + 1 + route)},
              exec::load_tagged(index > 0 ? units(src, index - 1) : header)};
    } else {
      return {exec::load_tagged(header), exec::load_tagged(header + 1 + route)};
    }
  }
  // The first token of a source's group among those of all groups, M of each.
  MOEWAY_FN int64_t first_token(int32_t src) const {
    return int64_t{group_of<Config>(round_, src)} * shape_.max_tokens;
  }
  // token_major: the token before among those of its source; of the first, the one before all that may come from there.
  MOEWAY_FN int32_t previous(const Opened& token) const {
    if constexpr (Config::kTokenMajor) {
      if (token.index > 0) return layout::TokenHead::unpack(token.header.get(0).previous).token;
    }
    return tokens_of<Config>(round_, scratch_, token.src).begin - 1;
  }
  MOEWAY_FN exec::Missing missing_header(int32_t src, int32_t index) const {
    return {{exec::Awaited::kHeader, src, index}, epoch_, exec::tag_of(exec::load_tagged(units(src, index)))};
  }
  // Routes base .. base + n - 1 of the header, as far as the token has them. `looked`: *header is what look() found.
  MOEWAY_FN bool recv_header(int32_t src, int32_t index, int32_t base, int32_t n, Header* header, bool looked) const {
    return team_.receive(
        header, n, looked, [&](int j) { return entry(src, index, base + j); },
        [&](int j, const Entry& entry) {
          if constexpr (Config::kTokenMajor) {
            if (!exec::has_tag(entry.previous, epoch_)) return false;
          }
          return exec::has_tag(entry.head, epoch_) &&
                 (base + j >= layout::TokenHead::unpack(entry.head).num_routes || exec::has_tag(entry.route, epoch_));
        },
        [&](int) { return missing_header(src, index); });
  }
  MOEWAY_FN bool possible(int32_t src, const layout::TokenHead& head) const {
    const layout::TokenRange tokens = tokens_of<Config>(round_, scratch_, src);
    return head.token >= tokens.begin && head.token < tokens.end && head.num_routes >= 1 &&
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
      team_.place(held, row_at(to), whole_rows(), chunk);
    }
  }
  MOEWAY_FN exec::TokenBytes row_at(const Address& to) const {
    return {{to.row, shape_.row_bytes, 1, 1}, {to.scales, shape_.scales_bytes, 1, 1}};
  }

  MOEWAY_FN Places to_places(int32_t src, const Header& header, int32_t n) const {
    return team_.spread(n, [&](int j) { return place_of(src, bits_.unpack(header.mine(j).route)); });
  }

  // The rows of a token. Routes go kSpread at a time; only the first that many are worked out before the payload comes.
  MOEWAY_FN bool recv_rows(Opened* opened) const {
    const int32_t src = opened->src, token = opened->head.token, num_routes = opened->head.num_routes;
    if (!payload_tells<Config>(shape_) && !wait_payload(src, token)) return false;
    MOEWAY_ROLL
    for (int chunk = 0; chunk == 0 || unusual<Config>(chunk < team_.num_chunks(shape_.token())); ++chunk) {
      if (unusual<Config>(chunk > 0)) look_at_payload(src, token, chunk, &opened->held);
      if (!recv_payload(src, token, chunk, &opened->held)) return false;
      copy_to_rows(opened->held, opened->places, exec::spread_size(num_routes), opened->dropped, chunk);
      MOEWAY_ROLL
      for (int32_t base = exec::kSpread; unusual<Config>(base < num_routes); base += exec::kSpread) {
        const int32_t n = exec::spread_size(num_routes - base);
        if (!recv_header(src, opened->index, base, n, &opened->header, false)) return false;
        const Places more = to_places(src, opened->header, n);
        uint32_t no_room;
        if (!placed(src, opened->index, more, n, &no_room)) return false;
        if (chunk == 0) opened->num_kept += keep(record(*opened), src, token, opened->num_kept, n, more, no_room);
        copy_to_rows(opened->held, more, n, no_room, chunk);
      }
    }
    return true;
  }
  MOEWAY_FN void look_at_payload(int32_t src, int32_t token, int chunk, typename Team::Held* held) const {
    if (!payload_tells<Config>(shape_)) return;
    team_.look(held, heap_ + round_.heap.payload(parity_of(epoch_), group_of<Config>(round_, src), token),
               shape_.token(), chunk);
  }
  MOEWAY_FN bool recv_payload(int32_t src, int32_t token, int chunk, typename Team::Held* held) const {
    std::byte* slot = heap_ + round_.heap.payload(parity_of(epoch_), group_of<Config>(round_, src), token);
    if (!payload_tells<Config>(shape_)) {
      team_.get(held, slot, shape_.token(), chunk);
      return true;
    }
    return team_.take(held, slot, shape_.token(), scratch_.held, chunk, [&] {
      return exec::Missing{{exec::Awaited::kPayload, src, token}, epoch_, 0};
    });
  }
  MOEWAY_FN bool wait_payload(int32_t src, int32_t token) const {
    const auto* signal = reinterpret_cast<const uint64_t*>(
        heap_ + round_.heap.payload_signal(parity_of(epoch_), group_of<Config>(round_, src), token));
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
      if (unusual<Config>(args_.row_weight.given() && place.row >= 0)) {
        *reinterpret_cast<float*>(args_.row_weight.row(place.local_expert, place.row)) = place.weight;
      }
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
  MOEWAY_FN bool recv_token_row(const Opened& opened) const {
    const int32_t src = opened.src;
    const layout::TokenHead head = opened.head;
    const int64_t first = first_token(src), row = first + head.token;
    if (!payload_tells<Config>(shape_) && !wait_payload(src, head.token)) return false;
    if (args_.out.given()) {
      std::byte* slot = heap_ + round_.heap.payload(parity_of(epoch_), group_of<Config>(round_, src), head.token);
      typename Team::Held held;
      MOEWAY_ROLL
      for (int chunk = 0; chunk == 0 || unusual<Config>(chunk < team_.num_chunks(shape_.token())); ++chunk) {
        team_.get(&held, slot, shape_.token(), chunk);
        team_.place(held, row_at({args_.out.row(0, row), args_.out_scales.row(0, row)}), whole_rows(), chunk);
      }
    }
    clear_rows(first, previous(opened) + 1, head.token);
    if (static_cast<uint32_t>(opened.index) + 1 == scratch_.num_slots[src])
      clear_rows(first, head.token + 1, tokens_of<Config>(round_, scratch_, src).end);
    bool come = true;
    team_.warps_in_turn([&](const auto& warp, int32_t turn, int32_t) {
      if (turn == 0) come = write_routes(warp, opened, row);
    });
    return come;
  }
  // The row's local experts and weights; by one warp, so that what is cleared is cleared before it is written.
  template <class Warp>
  MOEWAY_FN bool write_routes(const Warp& warp, const Opened& opened, int64_t row) const {
    warp.lanes(shape_.topk, [&](int32_t k) { clear_route(row, k); });
    warp.sync();
    Header header = opened.header;
    MOEWAY_ROLL
    for (int32_t base = 0; base == 0 || unusual<Config>(base < opened.head.num_routes); base += exec::kSpread) {
      const int32_t n = exec::spread_size(opened.head.num_routes - base);
      if (unusual<Config>(base > 0)) {
        const auto read = [&](int j) { return entry(opened.src, opened.index, base + j); };
        // recv_header() without a barrier: other warps are elsewhere.
        const bool come = warp.receive(
            &header, n, false, read, [&](int, const Entry& entry) { return exec::has_tag(entry.route, epoch_); },
            [&](int) { return missing_header(opened.src, opened.index); });
        if (!come) return false;
      }
      warp.lanes(n, [&](int32_t j) {
        const layout::Route route = bits_.unpack(header.mine(j).route);
        if (route.local_expert >= num_local_ || route.k >= shape_.topk) return;
        *reinterpret_cast<int32_t*>(args_.out_topk_idx.at(row, route.k)) = route.local_expert;
        *reinterpret_cast<float*>(args_.out_topk_weights.at(row, route.k)) = route.weight;
      });
    }
    return true;
  }
  MOEWAY_FN void clear_route(int64_t row, int32_t k) const {
    *reinterpret_cast<int32_t*>(args_.out_topk_idx.at(row, k)) = -1;
    *reinterpret_cast<float*>(args_.out_topk_weights.at(row, k)) = 0.0f;
  }
  // Rows first + begin .. first + end - 1 hold no token.
  MOEWAY_FN void clear_rows(int64_t first, int64_t begin, int64_t end) const {
    MOEWAY_ROLL
    for (int64_t row = first + begin; row < first + end; ++row) {
      team_.lanes(shape_.topk, [&](int32_t k) { clear_route(row, k); });
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
