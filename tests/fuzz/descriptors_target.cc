// Descriptors that peer processes send: how many, with which bytes, of what kind. Nothing may stay open, and what is mapped
// must bear being touched.
#include "transport/host/descriptor_exchange.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "fuzz/scripted_collective.h"
#include "transport/host/segment.h"

namespace moeway::fuzz {
namespace {

constexpr size_t kSegmentBytes = 4096;
constexpr int kMostDescriptors = 80;
const auto kTimeout = std::chrono::milliseconds(2);

size_t num_open() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists() ? 1 : 1;
  return count;
}

// Of a kind that a peer could send: the right one, and some that are not.
Descriptor make_descriptor(uint8_t kind) {
  if (kind % 4 == 0) {
    Result<Descriptor> segment = transport::make_segment(kSegmentBytes, Deadline::never());
    require(segment.ok(), "memory for a segment");
    return std::move(segment).value();
  }
  if (kind % 4 == 1) return Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
  // A segment of another size, or one that could shrink later.
  Descriptor memory(memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  require(ftruncate(memory.get(), kind % 4 == 2 ? kSegmentBytes : kind) == 0, "memory for a segment");
  if (kind % 4 == 3) fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return memory;
}

// A message as the input says: a kind of descriptor, how many of it, and the bytes beside them.
void send_message(int stream, Input& input) {
  const Descriptor one = make_descriptor(input.byte());
  const std::vector<int> descriptors(static_cast<size_t>(input.below_or_at(kMostDescriptors)), one.get());
  const Bytes bytes = input.take(static_cast<size_t>(input.below_or_at(16)));
  if (bytes.empty()) return;  // Descriptors travel with bytes.
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  iovec payload{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const size_t size = descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), descriptors.data(), size);
  }
  sendmsg(stream, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void exchange(Input& input) {
  const int rank = input.below_or_at(2);
  const int num_ranks = std::max(rank + 1, 2);
  const bool give = input.byte() % 4 != 0;
  std::vector<Descriptor> streams(static_cast<size_t>(num_ranks));
  std::vector<Descriptor> theirs;
  for (int r = 0; r < (rank == 0 ? num_ranks : 1); ++r) {
    if (r == rank) continue;
    std::array<int, 2> ends{};
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, "a pair of sockets");
    streams[static_cast<size_t>(r)] = Descriptor(ends[0]);
    theirs.emplace_back(ends[1]);
    for (int message = input.below_or_at(3); message > 0; --message) send_message(ends[1], input);
    shutdown(ends[1], SHUT_WR);
  }
  transport::DescriptorExchange exchange(std::move(streams));
  ScriptedCollective collective(rank, num_ranks, input);
  const Descriptor mine = give ? make_descriptor(0) : Descriptor();
  for (int call = 0; call < 2; ++call) {
    const auto all = exchange.all_gather(mine, collective, Deadline::after(kTimeout));
    require_readable(all.status());
    if (!all.ok()) continue;
    require(static_cast<int>(all.value().size()) == num_ranks, "a place for each rank");
    require(!all.value()[static_cast<size_t>(rank)].valid(), "a rank's own place is empty");
    for (const Descriptor& descriptor : all.value()) {
      const auto mapped = transport::Mapping::map(descriptor, kSegmentBytes);
      require_readable(mapped.status());
      if (mapped.ok()) mapped.value().base()[kSegmentBytes - 1] = std::byte{1};
    }
  }
}

void run(Bytes bytes) {
  const size_t before = num_open();
  Input input(bytes);
  exchange(input);
  require(num_open() == before, "every descriptor that came is closed again");
}

const Registration kTarget("descriptors", run);

}  // namespace
}  // namespace moeway::fuzz
