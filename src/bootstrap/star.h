// An all-gather over streams: every rank sends to rank 0 and gets everybody's bytes back.
#pragma once

#include <memory>
#include <vector>

#include "base/collective.h"
#include "base/descriptor.h"

namespace moeway::bootstrap {

// Rank 0's end. `streams[r]` leads to rank r; streams[0] is empty. Non-blocking sockets.
std::unique_ptr<Collective> make_star_center(std::vector<Descriptor> streams);
// The end of rank `rank` > 0. `stream` leads to rank 0.
std::unique_ptr<Collective> make_star_point(Descriptor stream, int rank, int num_ranks);

}  // namespace moeway::bootstrap
