// The launches of dispatch (docs/protocols/direct.md): the receiving half, and both halves in one.
#pragma once

#include <cstdint>

#include "kernels/direct/dispatch_recv.h"
#include "kernels/direct/dispatch_send.h"

namespace moeway::kernels::direct {

template <class Config, class Team, class Peers>
MOEWAY_FN TokenReceiver<Config, Team, Peers> make_receiver(const Team& team, const DispatchArgs& args,
                                                           const Peers& peers, uint64_t epoch,
                                                           const DispatchScratch& scratch) {
  return {team, args, peers, epoch, scratch};
}

// Receives this team's share of the tokens of all sources but `except`.
template <class Config, class Team, class Peers>
MOEWAY_FN bool recv_share(const Team& team, const TokenReceiver<Config, Team, Peers>& receiver,
                          const DispatchArgs& args, const DispatchScratch& scratch, int32_t except) {
  const layout::Shape& shape = args.round.shape();
  int64_t num_before = 0;
  MOEWAY_ROLL
  for (int32_t step = 0; step < shape.num_ranks(); ++step) {
    // Every rank starts with another source, so that they do not all wait for the same one.
    const int32_t src = args.round.source(step);
    if (src == except) continue;
    const int64_t num_slots = scratch.num_slots[src];
    if (Config::kTokenMajor && num_slots == 0 && src % team.count() == team.id()) {
      receiver.clear_source(src);
    }
    MOEWAY_ROLL
    for (int64_t i = first_share(num_before, team.id(), team.count()); i < num_slots; i += team.count()) {
      if (!receiver.recv(src, i)) return false;
    }
    num_before += num_slots;
  }
  return true;
}

template <class Config, class Team, class Peers>
MOEWAY_FN void dispatch_recv(const Team& team, const DispatchArgs& args, const Peers& peers) {
  team.begin();
  const uint64_t epoch = args.round.epoch(team);
  const DispatchScratch scratch(team.scratch(), args.round.heap);
  if (!team.all(Counts(team, args, peers, epoch, scratch).recv())) return;
  if (team.id() == 0) Counts(team, args, peers, epoch, scratch).publish();
  team.each_half([&](const auto& half) {
    const auto receiver = make_receiver<Config>(half, args, peers, epoch, scratch);
    if (!recv_share(half, receiver, args, scratch, -1)) return false;
    return half.id() != half.count() - 1 || Counts(half, args, peers, epoch, scratch).recv_credit();
  });
}

// Both halves in one launch. While one half of a team sends its tokens, and copies those for experts of its own rank to
// their rows at once, the other announces them and receives.
template <class Config, class Team, class Peers>
MOEWAY_FN void dispatch(const Team& team, const DispatchArgs& args, const Peers& peers) {
  const Round& round = args.round;
  const DispatchScratch scratch(team.scratch(), round.heap);
  const Sending sending = begin_send(team, args, scratch);
  const uint64_t epoch = sending.epoch;
  const Share share(team.id(), team.count(), sending.num_tokens);
  const bool last = team.id() == team.count() - 1;
  // token_major leaves every token in the heap first: the caller may want to read it there.
  constexpr bool own_direct = !Config::kTokenMajor;

  typename Team::Held held;
  bool here = false;
  const bool counted = team.both(
      [&](const auto& half) {
        if (last) release_credit(half, round, peers, epoch);
        if (share.begin < share.end) {
          here = make_sender<Config>(half, args, peers, epoch, scratch, own_direct).send(share.begin, &held);
        }
        return true;
      },
      [&](const auto& half) {
        Announcer(half, args, peers, epoch, scratch, own_direct).run(share, last);
        return Counts(half, args, peers, epoch, scratch).recv();
      });
  if (!counted) return;
  const bool received = team.both(
      [&](const auto& half) {
        if (last) add_sent(half, round, scratch);
        const auto sender = make_sender<Config>(half, args, peers, epoch, scratch, own_direct);
        const auto receiver = make_receiver<Config>(half, args, peers, epoch, scratch);
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
        const auto receiver = make_receiver<Config>(half, args, peers, epoch, scratch);
        if (!recv_share(half, receiver, args, scratch, own_direct ? round.rank : -1)) return false;
        if (half.id() == half.count() / 2) Counts(half, args, peers, epoch, scratch).publish();
        return !last || Counts(half, args, peers, epoch, scratch).recv_credit();
      });
  if (!received) return;
  end_send(team, round, sending);
}

}  // namespace moeway::kernels::direct
