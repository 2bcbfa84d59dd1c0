// dispatch_send of the direct protocol (docs/protocols/direct.md): announces, and writes each token once to each rank
// that owns one of the token's experts. It waits for nothing.
#pragma once

#include <cstdint>

#include "kernels/direct/announce.h"
#include "kernels/direct/dispatch_args.h"

namespace moeway::kernels::direct {

// Writes own tokens to where they go.
template <class Config, class Team, class Peers>
class TokenSender {
 public:
  MOEWAY_FN TokenSender(Config, const Team& team, const DispatchArgs& args, const Peers& peers, uint64_t epoch,
                        bool own_direct)
      : team_(team),
        args_(args),
        round_(args.round),
        shape_(args.round.shape()),
        peers_(peers),
        epoch_(epoch),
        own_direct_(own_direct) {}

  // Sends the token and leaves it, or its last chunk, in `held`. Whether this rank has an expert of it.
  MOEWAY_FN bool send(int64_t token, typename Team::Held* held) const {
    const exec::TokenFormat format = shape_.token();
    bool here = false;
    MOEWAY_ROLL
    for (int chunk = 0; chunk == 0 || unusual<Config>(chunk < team_.num_chunks(format)); ++chunk) {
      team_.hold(held, args_.token(token), whole_tokens(), chunk);
      for_each_set<Config>(shape_.num_ranks(), [&](int32_t low) {
        MOEWAY_ROLL
        for (uint32_t rest = ranks_of<Config>(team_, args_, token, low); rest != 0; rest &= rest - 1) {
          const int32_t dst = low + exec::lowest(rest);
          here = here || dst == round_.rank;
          if (own_direct_ && dst == round_.rank) continue;
          team_.put(*held, payload(dst, token), format, payload_tells<Config>(shape_), chunk);
        }
      });
    }
    if (!payload_tells<Config>(shape_)) signal(token);
    return here;
  }

  // Chunk `chunk` of the token, whose last chunk `held` has.
  MOEWAY_FN void hold_again(int64_t token, int chunk, typename Team::Held* held) const {
    if (unusual<Config>(team_.num_chunks(shape_.token()) > 1))
      team_.hold(held, args_.token(token), whole_tokens(), chunk);
  }

 private:
  MOEWAY_FN bool whole_tokens() const { return !unusual<Config>(!args_.whole_tokens); }
  MOEWAY_FN std::byte* payload(int32_t dst, int64_t token) const {
    return peers_.heap(dst) + round_.heap.payload(parity_of(epoch_), round_.rank, token);
  }
  MOEWAY_FN void signal(int64_t token) const {
    team_.sync();
    const int64_t offset = round_.heap.payload_signal(parity_of(epoch_), round_.rank, token);
    for_each_set<Config>(shape_.num_ranks(), [&](int32_t low) {
      const uint32_t ranks = ranks_of<Config>(team_, args_, token, low);
      team_.lanes(kRankBits, [&](int32_t i) {
        if ((ranks >> i & 1) == 0 || (own_direct_ && low + i == round_.rank)) return;
        // Release; pairs with the acquire in wait_payload(): the payload comes before it, what other lanes wrote by the
        // sync() above.
        exec::store_release<exec::Scope::kSystem>(reinterpret_cast<uint64_t*>(peers_.heap(low + i) + offset), epoch_);
      });
    });
  }

  const Team& team_;
  const DispatchArgs& args_;
  const Round& round_;
  const layout::Shape& shape_;
  const Peers& peers_;
  const uint64_t epoch_;
  const bool own_direct_;
};

// How every launch that sends begins: the epoch of what it sends.
template <class Team>
MOEWAY_FN uint64_t begin_send(const Team& team, const Round& round, const DispatchScratch& scratch) {
  clear_counters(team, round.shape(), scratch);
  team.sync();
  team.begin();
  return round.last_epoch(team) + 1;
}

// And how it ends: combine finds the number of tokens, the next launch the epoch.
template <class Team>
MOEWAY_FN void end_send(const Team& team, const Round& round, uint64_t epoch, int32_t num_tokens) {
  if (team.id() == 0) {
    team.leader([&] { *round.at<int32_t>(round.workspace.num_tokens(parity_of(epoch))) = num_tokens; });
  }
  round.set_last_epoch(team, epoch);
}

template <class Config, class Team, class Peers>
MOEWAY_FN void dispatch_send(const Team& team, const DispatchArgs& args, const Peers& peers) {
  const Round& round = args.round;
  const DispatchScratch scratch(team.scratch(), round.heap);
  const uint64_t epoch = begin_send(team, round, scratch);
  const Share share(team.id(), team.count(), args.num_tokens);
  const bool last = team.id() == team.count() - 1;
  team.both(
      [&](const auto& half) {
        if (last) release_credit(half, round, peers, epoch);
        const TokenSender sender(Config{}, half, args, peers, epoch, false);
        typename Team::Held held;
        MOEWAY_ROLL
        for (int64_t token = share.begin; token < share.end; ++token) sender.send(token, &held);
        return true;
      },
      [&](const auto& half) {
        Announcer(Config{}, half, args, peers, epoch, scratch, false).run(share, last);
        return true;
      });
  if (last) add_sent(team, round, scratch);
  end_send(team, round, epoch, args.num_tokens);
}

}  // namespace moeway::kernels::direct
