// The execution contract: what kernels may ask of the group of threads that runs them. docs/execution.md explains it
// with examples.
//
// A kernel is a function template `kernel(team, args, peers)`. A launch runs it once per team; all teams of a launch
// are resident at the same time, so a team may wait for what a peer's teams do. A team has one or more lanes, in warps
// that run freely between barriers. Every lane runs the kernel's code with the same values in its local variables
// ("uniformly"), and splits work only through the operations below; what an operation's callback writes to a local
// variable belongs to the lane that ran it.
//
// Who works
// - team.id(), team.count(): this team among those of the launch. Work is split by them; results must not depend on
//   count().
// - team.both(f, g): f(half) and g(half) at the same time on two halves of the team, or one after the other where a
//   team has one lane; then a barrier. So f may not wait for g. Each returns whether it went well; false (on all lanes)
//   if either did not.
// - team.each_half(f): f(half) on both halves, with ids among all halves of the launch; then as both().
// - team.warp(): the warp of this team that the calling lane belongs to, as a team, with an id among all such warps.
//   Operations of different warps do not wait for each other.
// - team.warps_in_turn(f): f(warp, i, n) on each of the team's n warps.
//
// Lanes
// - team.lanes(n, f): f(i) for 0 <= i < n, spread over the lanes. Index i always runs on the same lane of the team.
//   Ends without a barrier.
// - team.leader(f): f() on one lane, without a barrier.
// - team.sync(): a barrier of the team's lanes: what they wrote before it, they all see after it. What a lane releases
//   after it covers what all of them wrote before it. Not after a poll() that may have failed on some warp.
// - team.all(ok): whether ok holds on every lane, and a barrier.
// - team.spread(n, f): n <= kSpread values f(i), computed once per warp, without a barrier; f only reads. Value i is
//   .get(i) on every lane, and .mine(i) inside the callback for index i of spread() and of lanes() with n <= kSpread.
// - team.match(n, spread): for each of n <= kSpread ints the mask of the indices that have the same; 0 for negative ones.
// - team.ballot(n, f): the mask of the indices i < n for which f(i) is true, on all lanes.
// - team.unite(n, f): the union (or) of the masks f(i), i < n <= kSpread, on all lanes.
// - team.add(counter, mine): adds every lane's number to a counter that teams share.
// - team.begin(): what earlier launches have written may be read only after it.
// - team.scratch(): memory of this team alone, of the size that the launch asked for, 16-byte aligned; holds anything.
// - team.count_into(p): ++*p for a counter in scratch, from any lane; count_into_few(p) where lanes have few counters
//   between them.
//
// Waiting
// - team.poll(ready, blame): until ready() is true on every lane of the warp. ready() reads what the lane waits for,
//   relaxed or acquiring; blame() says what is missing (exec::Missing) and is asked now and then on a lane that is not
//   ready, for the deadline, the peer's life and its word. False if the wait has failed (the report is filled) or
//   another team's has: the kernel must return, through both(), each_half() or all().
// - team.poll_each(n, ready, blame): the same for ready(i), blame(i), 0 <= i < n, spread over the lanes.
// - team.receive(&spread, n, given, read, ready, blame): spread(n, read), once ready(i, value) is true for all of them. Where
//   they are `given`, the values that *spread has are looked at before others are read.
// - team.fail(failure): reports a failure that is no wait's. The kernel must then return.
//
// Rows
// - Held: a token, or a chunk of one, held by the team: team.hold(), get() and take() fill it, put() and place() write
//   it (exec/token_bytes.h says where tokens lie). A team with few lanes may hold it by reference, so what it was filled
//   from must stay as it is. look() comes before the take() of the same slot and may start to read it.
// - team.hold_quantised(): hold() of a bf16 row as e4m3 and scales (exec/quantise.h), with `room` of quantised_bytes() in
//   scratch that stays until the next one. Ends with a barrier. The chunks of a token come in their order.
// - Team::kElements, Team::kPieces, Team::Piece<T>: a lane's part of a slice of a row: kPieces pieces of kElements
//   consecutive elements. team.pieces(slice, n, f): f(p, first, num) for this lane's pieces of the slice of an n-element
//   row; num <= kElements. Piece has load, take, put, add_to, round and store.
// - team.slices(n): slices of such a row. Team::kWholeRows: a team deals in rows, not in slices of them.
// - Team::Queue<T>(team): rows of T, of whole units, on their way to this lane. ask(row, slice, n) starts to fetch a slice;
//   next(pieces) gives the slices in the order in which they were asked for. kAhead calls of ask(), or of skip() where
//   there is no row left, come before the first next(), and one more after each. At the end nothing may be on its way.
//
// Forms: exec::HostTeam (host/team.h: thread per warp, fiber per warp, or 32 lanes as fibers) and exec::CudaTeam
// (cuda/team.h).
#pragma once

#include "exec/atomic.h"
#include "exec/compiler.h"
#include "exec/numeric.h"
#include "exec/quantise.h"
#include "exec/report.h"
#include "exec/token_bytes.h"
#include "exec/unit.h"

namespace moeway::exec {

// Most values of a spread().
inline constexpr int kSpread = 32;
// How many of `left` a spread() takes.
MOEWAY_FN int32_t spread_size(int32_t left) { return left < kSpread ? left : kSpread; }

// Of a mask of indices.
MOEWAY_FN int popcount(uint32_t mask) {
#if defined(__CUDA_ARCH__)
  return __popc(mask);
#else
  return __builtin_popcount(mask);
#endif
}
MOEWAY_FN int lowest(uint32_t mask) {  // Of a mask that is not 0.
#if defined(__CUDA_ARCH__)
  return __ffs(static_cast<int>(mask)) - 1;
#else
  return __builtin_ctz(mask);
#endif
}
MOEWAY_FN int lowest(uint64_t mask) {
#if defined(__CUDA_ARCH__)
  return __ffsll(static_cast<long long>(mask)) - 1;
#else
  return __builtin_ctzll(mask);
#endif
}
MOEWAY_FN uint32_t below(int i) { return (uint32_t{1} << i) - 1; }

// What a poll still waits for: `seen` is an epoch, below `expected` if all is well.
struct Missing {
  WaitSite site;
  uint64_t expected;
  uint64_t seen;
};

}  // namespace moeway::exec
