// Frames, once ranks have met: what a peer sends to rank 0, or rank 0 to a peer, while they gather and agree.
#include "bootstrap/frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/descriptor.h"
#include "bootstrap/star.h"
#include "fuzz/input.h"

namespace moeway::fuzz {
namespace {

constexpr int kNumRanks = 3;
constexpr size_t kMostBytes = 64;

// The end of a stream over which `sent` has come and nothing more will.
Descriptor stream_with(Bytes sent) {
  std::array<int, 2> ends{};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, "a pair of sockets");
  const Descriptor theirs(ends[1]);
  Descriptor ours(ends[0]);
  if (!sent.empty()) (void)!send(theirs.get(), sent.data(), sent.size(), MSG_NOSIGNAL);
  shutdown(theirs.get(), SHUT_WR);
  return ours;
}

// Byte 0: which end this process is; byte 1: calls; byte 2: bytes of a call. Then, for rank 0, what rank 1 sends, with
// its length in front; the rest is sent by the last peer.
void run(Bytes bytes) {
  Input input(bytes);
  const bool center = input.byte() % 2 == 0;
  const int num_calls = 1 + input.below_or_at(2);
  const size_t size = std::min<size_t>(input.byte(), kMostBytes);
  std::unique_ptr<Collective> collective;
  if (center) {
    std::vector<Descriptor> streams(kNumRanks);
    streams[1] = stream_with(input.take(input.value<uint16_t>()));
    streams[2] = stream_with(input.rest());
    collective = bootstrap::make_star_center(std::move(streams));
  } else {
    collective = bootstrap::make_star_point(stream_with(input.rest()), 1, kNumRanks);
  }
  const auto now = [] { return Deadline::after(std::chrono::milliseconds(0)); };
  std::vector<uint8_t> mine(size, 7);
  Status status;
  for (int call = 0; call < num_calls && status.ok(); ++call) {
    std::vector<uint8_t> all(size * kNumRanks);
    status = collective->all_gather(mine.data(), size, all.data(), now());
    require_readable(status);
    const size_t place = center ? 0 : size;
    if (status.ok() && center)
      require(std::equal(mine.begin(), mine.end(), all.begin() + static_cast<ptrdiff_t>(place)),
              "a rank's own bytes are in its place");
  }
  require_readable(collective->agree({}, now()));
}

const Registration kTarget("frame", run);

}  // namespace
}  // namespace moeway::fuzz
