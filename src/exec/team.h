// The execution contract: what kernels may ask of the group of threads that runs them. docs/execution.md explains it
// with examples.
//
// A kernel is a function template `kernel(team, args, peers)`. A launch runs it once per team; all teams of a launch
// are resident at the same time, so a team may wait for what a peer's teams do. A team has one or more lanes; every
// lane runs the kernel's code with the same values in its local variables ("uniformly"), and splits work only through
// the operations below. Local variables written inside f(i) of `lanes` belong to the lane that ran it.
//
// - team.id(), team.count(): this team among those of the launch. Work is split by them; results must not depend on
//   count().
//
// - team.lanes(n, f): f(i) for 0 <= i < n, spread over the lanes. Index i always runs on the same lane of the team.
//   Ends without a barrier.
//
// - team.copy(dst, src, bytes): copies bytes with all lanes; any alignment; no overlap. Ends without a barrier.
//
// - team.sync(): a barrier of the team's lanes: what they wrote before it, they all see after it.
//
// - team.once(f): sync(); f() on one lane; its result on all lanes. What f releases covers what all lanes wrote before.
//
// - team.sum(n, f): the sum of f(i), an integer, on all lanes.
//
// - team.scratch(): memory of this team alone, of the size that the launch asked for, 16-byte aligned; holds anything.
//
// - team.count_into(p, n): *p += n for a counter in scratch, from any lane.
//
// - team.wait(site, expected, read): waits until read() == expected; read is an acquire load, done by one lane, and
//   what it acquired is then visible to all lanes. Backs off; looks at the deadline, the peer's life and its word.
//   False if the wait has failed (the report is filled) or another team's has: the kernel must then return.
//
// - team.fail(failure): reports a failure that is no wait's. The kernel must then return.
//
// Forms: exec::HostTeam (host/team.h: thread per warp, fiber per warp, or 32 lanes as fibers) and exec::CudaTeam
// (cuda/team.h).
#pragma once

#include "exec/atomic.h"
#include "exec/compiler.h"
#include "exec/numeric.h"
#include "exec/report.h"
