// How the processes of one machine get streams to each other over which descriptors can travel: a Unix-domain socket of
// rank 0's in a private directory.
//
// What may be left behind: in the first form the directory is made, bound and removed by rank 0 before anybody else
// needs it, and the others connect through rank 0's descriptor in /proc. Where that does not work (rank 0 in another
// PID namespace, or closed to its peers), the directory stays until all have connected. In either form every rank knows
// the directory's random name before it is made, and whoever is still alive when the meeting fails removes it. So only
// the SIGKILL of all ranks, within these few system calls or within this time, leaves it, with at most a dead socket in
// it; it disturbs no later job.
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
