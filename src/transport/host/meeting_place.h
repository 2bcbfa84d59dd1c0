// How the processes of one machine get streams to each other over which descriptors can travel: a Unix-domain socket of
// rank 0's in a private directory.
//
// What may be left behind: in the first form the directory is made, bound and removed by rank 0 before anybody else hears
// of it, and the others connect through rank 0's descriptor in /proc; only a SIGKILL between these few system calls leaves
// a directory, with at most the socket in it. Where that form does not work (rank 0 in another PID namespace, or closed to
// its peers), the directory stays until all have connected; whoever of the ranks is still alive removes it, so that
// only the SIGKILL of all of them within this time leaves it. Its name is random, so what is left disturbs no later job.
#pragma once

#include <moeway/status.h>

#include <vector>

#include "base/collective.h"
#include "base/descriptor.h"
#include "transport/host/whereabouts.h"

namespace moeway::transport {

// Collective. On rank 0 the stream to rank r at index r, on others the one to rank 0 at index 0; all else empty. Fails
// on all ranks if it fails on one.
Result<std::vector<Descriptor>> connect_processes(const std::vector<Whereabouts>& ranks, Collective& collective,
                                                  Deadline deadline);

}  // namespace moeway::transport
