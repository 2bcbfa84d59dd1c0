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
                        const DispatchScratch& scratch, bool own_direct)
      : team_(team),
        args_(args),
        round_(args.round),
        shape_(args.round.shape()),
        peers_(peers),
        epoch_(epoch),
        scratch_(scratch),
        own_direct_(own_direct) {}

  // Sends the token and leaves it, or its last chunk, in `held`. Whether this rank has an expert of it.
  MOEWAY_FN bool send(int64_t token, typename Team::Held* held) const {
    const exec::TokenFormat format = shape_.token();
    bool here = false;
    MOEWAY_ROLL
    for (int chunk = 0; chunk == 0 || unusual<Config>(chunk < team_.num_chunks(format)); ++chunk) {
      hold(token, chunk, held);
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
    if (unusual<Config>(team_.num_chunks(shape_.token()) > 1)) hold(token, chunk, held);
  }

 private:
  MOEWAY_FN void hold(int64_t token, int chunk, typename Team::Held* held) const {
    const bool whole = !unusual<Config>(!args_.whole_tokens);
    if constexpr (Config::kQuantise) {
      team_.hold_quantised(held, args_.token(token), whole, shape_.token(), shape_.scaling,
                           scratch_.quantised(team_, shape_), chunk);
    } else {
      team_.hold(held, args_.token(token), whole, chunk);
    }
  }
  MOEWAY_FN std::byte* payload(int32_t dst, int64_t token) const {
    return peers_.heap(dst) + round_.heap.payload(parity_of(epoch_), group_of<Config>(round_, round_.rank), token);
  }
  MOEWAY_FN void signal(int64_t token) const {
    team_.sync();
    const int64_t offset = round_.heap.payload_signal(parity_of(epoch_), group_of<Config>(round_, round_.rank), token);
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
  const DispatchScratch& scratch_;
  const bool own_direct_;
};

// What combine will need to know of a token that another member of this rank's group sends: its results come here too.
MOEWAY_RARE void note_token(const DispatchArgs* args, uint64_t epoch, int64_t token) {
  const Round& round = args->round;
  const int32_t topk = round.shape().topk;
  auto* experts = round.at<int32_t>(round.workspace.topk_idx(parity_of(epoch), token));
  layout::OwnToken own{0, -1};
  MOEWAY_ROLL
  for (int32_t k = 0; k < topk; ++k) {
    const int64_t id = args->topk_idx.at(token, k);
    const int32_t expert = args->expert_of(id);
    const bool repeated = expert >= 0 && args->distinct_experts && names_before(args, token, k, expert);
    if (repeated || (expert < 0 && id != -1)) report_route(args, token, k);
    experts[k] = repeated ? -1 : expert;
    if (experts[k] >= 0 && !goes_before(args, token, k, round.heap.owners.of(expert))) ++own.num_results;
  }
  *round.at<layout::OwnToken>(round.workspace.own(parity_of(epoch), token)) = own;
}

// Relaxed: the host reads it after the launch.
MOEWAY_RARE void report_num_tokens(const DispatchArgs* args, int32_t given) {
  exec::store_relaxed<exec::Scope::kSystem>(
      &args->mistakes->num_tokens,
      uint64_t{static_cast<uint32_t>(args->num_tokens)} << 32 | static_cast<uint32_t>(given));
}

// How many tokens the rank has, after begin().
template <class Team>
MOEWAY_FN int32_t given_tokens(const Team& team, const DispatchArgs& args) {
  if (args.num_tokens_at == nullptr) return args.num_tokens;
  const int32_t given = *args.num_tokens_at;
  if (given >= 0 && given <= args.num_tokens) return given;
  if (team.id() == 0) team.leader([&] { report_num_tokens(&args, given); });
  return 0;
}

// What a launch that sends learns at its beginning.
struct Sending {
  uint64_t epoch;
  int32_t num_tokens;
  layout::TokenRange own;  // Those of them that this rank sends: all without replicas.
};

// How every such launch begins.
template <class Config, class Team>
MOEWAY_FN Sending begin_send(const Team& team, const DispatchArgs& args, const DispatchScratch& scratch) {
  clear_counters(team, args.round.shape(), scratch);
  team.sync();
  team.begin();
  const int32_t num_tokens = given_tokens(team, args);
  layout::TokenRange own{0, num_tokens};
  if (unusual<Config>(args.round.shape().replicated())) {
    own = args.round.heap.replicas.share(args.round.rank, num_tokens);
  }
  return {args.round.last_epoch(team) + 1, num_tokens, own};
}

// And how it ends: combine finds the number of tokens, the next launch the epoch.
template <class Team>
MOEWAY_FN void end_send(const Team& team, const Round& round, const Sending& sending) {
  if (team.id() == 0) {
    team.leader([&] { *round.at<int32_t>(round.workspace.num_tokens(parity_of(sending.epoch))) = sending.num_tokens; });
  }
  round.set_last_epoch(team, sending.epoch);
}

// This team's part of the tokens that other members of this rank's group send.
template <class Team>
MOEWAY_FN void note_others(const Team& team, const DispatchArgs& args, const Sending& sending) {
  const int32_t others = sending.num_tokens - sending.own.size();
  const int32_t each = (others + team.count() - 1) / team.count(), begin = team.id() * each;
  team.lanes(begin + each < others ? each : others - begin, [&](int32_t i) {
    const int32_t other = begin + i;
    note_token(&args, sending.epoch, other < sending.own.begin ? other : other + sending.own.size());
  });
}

template <class Config, class Team, class Peers>
MOEWAY_FN void dispatch_send(const Team& team, const DispatchArgs& args, const Peers& peers) {
  const Round& round = args.round;
  const DispatchScratch scratch(team.scratch(), round.heap);
  const Sending sending = begin_send<Config>(team, args, scratch);
  const uint64_t epoch = sending.epoch;
  const Share share(team.id(), team.count(), sending.own);
  const bool last = team.id() == team.count() - 1;
  team.both(
      [&](const auto& half) {
        if (last) release_credit(half, round, peers, epoch);
        const TokenSender sender(Config{}, half, args, peers, epoch, scratch, false);
        typename Team::Held held;
        MOEWAY_ROLL
        for (int64_t token = share.begin; token < share.end; ++token) sender.send(token, &held);
        if (unusual<Config>(round.shape().replicated())) note_others(half, args, sending);
        return true;
      },
      [&](const auto& half) {
        Announcer(Config{}, half, args, peers, epoch, scratch, false).run(share, sending.num_tokens, last);
        return true;
      });
  if (last) add_sent(team, round, scratch);
  end_send(team, round, sending);
}

}  // namespace moeway::kernels::direct
