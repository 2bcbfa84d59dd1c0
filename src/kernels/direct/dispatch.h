// The launches of dispatch (docs/protocols/direct.md): the receiving half, and both halves in one.
#pragma once

#include <cstdint>

#include "kernels/direct/dispatch_recv.h"
#include "kernels/direct/dispatch_send.h"

namespace moeway::kernels::direct {

// A team's share of what the sources send, one token after the other. Every rank starts with another source, so that they
// do not all wait for the same one; tokens of a source are dealt to the teams in turn, of each source from another team on.
class ReceivedShare {
 public:
  // `own`: tokens of this rank too. After a barrier behind Counts::recv().
  MOEWAY_FN ReceivedShare(int id, int count, const Round& round, const DispatchScratch& scratch, bool own)
      : round_(round),
        scratch_(scratch),
        count_(count),
        step_(own ? 0 : 1),
        first_(id),
        index_(static_cast<uint32_t>(id)) {
    find();
  }
  MOEWAY_FN bool done() const { return step_ >= round_.shape().num_ranks(); }
  MOEWAY_FN int32_t src() const { return round_.source(step_); }
  MOEWAY_FN int32_t index() const { return static_cast<int32_t>(index_); }
  MOEWAY_FN void next() {
    index_ += static_cast<uint32_t>(count_);
    find();
  }

 private:
  // To the next source that has such a token.
  MOEWAY_FN void find() {
    MOEWAY_ROLL
    while (!done() && index_ >= scratch_.num_slots[src()]) {
      first_ -= (count_ >> 2) + 1;
      if (first_ < 0) first_ += count_;
      index_ = static_cast<uint32_t>(first_);
      ++step_;
    }
  }

  const Round& round_;
  const DispatchScratch& scratch_;
  const int count_;
  int32_t step_;
  int32_t first_;
  uint32_t index_;
};

// Receives this team's share. While the rows of a token are written, the payload of the next one is on its way, and the header of
// the one after that. `header` is that of token team.id() of the first source, if `looked`.
template <class Config, class Team, class Peers>
MOEWAY_FN bool recv_share(const Team& team, const TokenReceiver<Config, Team, Peers>& receiver,
                          const DispatchArgs& args, const DispatchScratch& scratch, bool own,
                          typename TokenReceiver<Config, Team, Peers>::Header header, bool looked) {
  if constexpr (Config::kTokenMajor) {
    for (int32_t src = team.id(); src < args.round.shape().num_ranks(); src += team.count()) {
      if (scratch.num_slots[src] == 0) receiver.clear_source(src);
    }
  }
  ReceivedShare share(team.id(), team.count(), args.round, scratch, own);
  looked = looked && share.src() == args.round.source(own ? 0 : 1);
  typename TokenReceiver<Config, Team, Peers>::Opened now, next;
  bool opened = false;
  MOEWAY_ROLL
  while (opened || !share.done()) {
    const bool more = !share.done();
    if (more) {
      if (!receiver.open(share.src(), share.index(), header, looked, &next)) return false;
      share.next();
      looked = !share.done();
      if (looked) header = receiver.look(share.src(), share.index());
    }
    if (opened && !receiver.finish(&now)) return false;
    opened = more;
    now = next;
  }
  return true;
}

template <class Config, class Team, class Peers>
MOEWAY_FN void dispatch_recv(const Team& team, const DispatchArgs& args, const Peers& peers) {
  team.begin();
  const uint64_t epoch = args.round.epoch(team);
  const DispatchScratch scratch(team.scratch(), args.round.heap);
  if (!team.all(Counts(Config{}, team, args, peers, epoch, scratch).recv())) return;
  if (team.id() == 0) Counts(Config{}, team, args, peers, epoch, scratch).publish();
  team.each_half([&](const auto& half) {
    const TokenReceiver receiver(Config{}, half, args, peers, epoch, scratch);
    if (!recv_share(half, receiver, args, scratch, true, {}, false)) return false;
    return half.id() != half.count() - 1 || Counts(Config{}, half, args, peers, epoch, scratch).recv_credit();
  });
}

// Both halves in one launch. While one half of a team sends its tokens, and copies those for experts of its own rank to
// their rows at once, the other announces them and receives. Not with replicas.
template <class Config, class Team, class Peers>
MOEWAY_FN void dispatch(const Team& team, const DispatchArgs& args, const Peers& peers) {
  const Round& round = args.round;
  const DispatchScratch scratch(team.scratch(), round.heap);
  const Sending sending = begin_send<Config>(team, args, scratch);
  const uint64_t epoch = sending.epoch;
  const Share share(team.id(), team.count(), sending.own);
  const bool last = team.id() == team.count() - 1;
  // token_major leaves every token in the heap first: the caller may want to read it there.
  constexpr bool own_direct = !Config::kTokenMajor;

  typename Team::Held held;
  bool here = false;
  typename TokenReceiver<Config, Team, Peers>::Header header{};
  const bool looked = team.id() < round.shape().max_tokens && (!own_direct || round.shape().num_ranks() > 1);
  const bool counted = team.both(
      [&](const auto& half) {
        if (last) release_credit(half, round, peers, epoch);
        if (share.begin < share.end) {
          here = TokenSender(Config{}, half, args, peers, epoch, scratch, own_direct).send(share.begin, &held);
        }
        return true;
      },
      [&](const auto& half) {
        Announcer(Config{}, half, args, peers, epoch, scratch, own_direct).run(share, sending.num_tokens, last);
        const bool come = Counts(Config{}, half, args, peers, epoch, scratch).recv();
        // The first header may be there too.
        if (looked)
          header = TokenReceiver(Config{}, half, args, peers, epoch, scratch).look(round.source(own_direct), team.id());
        return come;
      });
  if (!counted) return;
  const bool received = team.both(
      [&](const auto& half) {
        if (last) add_sent(half, round, scratch);
        const TokenSender sender(Config{}, half, args, peers, epoch, scratch, own_direct);
        const TokenReceiver receiver(Config{}, half, args, peers, epoch, scratch);
        MOEWAY_ROLL
        for (int64_t token = share.begin; token < share.end; ++token) {
          if (token > share.begin) here = sender.send(token, &held);
          if (!own_direct || !here) continue;
          const auto hold = [&](int chunk) { sender.hold_again(token, chunk, &held); };
          if (!receiver.place_own(token, held, hold)) return false;
        }
        return true;
      },
      [&](const auto& half) {
        const TokenReceiver receiver(Config{}, half, args, peers, epoch, scratch);
        if (!recv_share(half, receiver, args, scratch, !own_direct, header, looked)) return false;
        if (half.id() == half.count() / 2) Counts(Config{}, half, args, peers, epoch, scratch).publish();
        return !last || Counts(Config{}, half, args, peers, epoch, scratch).recv_credit();
      });
  if (!received) return;
  end_send(team, round, sending);
}

}  // namespace moeway::kernels::direct
