#include "transport/host/descriptor_exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>

#include "base/format.h"
#include "base/stream.h"

namespace moeway::transport {
namespace {

// Fewer than the kernel takes in one message (253).
constexpr size_t kMostPerMessage = 64;
constexpr size_t kControlBytes = CMSG_SPACE(kMostPerMessage * sizeof(int));

// `tag` travels with the descriptors and must be what the receiver expects. At most kMostPerMessage.
Status send_descriptors(int stream, std::span<const int> descriptors, uint64_t tag, Deadline deadline) {
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  iovec payload{&tag, sizeof(tag)};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  for (;;) {
    const ssize_t sent = sendmsg(stream, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(sizeof(tag))) return {};
    if (sent >= 0) return error(MOEWAY_INTERNAL, "a socket took {} of {} bytes", sent, sizeof(tag));
    if (errno == EINTR) continue;
    // ETOOMANYREFS: the user has as many descriptors under way as one may have; those who wait for them will take some.
    if (errno != EAGAIN && errno != ETOOMANYREFS) return system_error("sendmsg", errno, MOEWAY_PEER_LOST);
    if (deadline.passed()) return error(MOEWAY_DEADLINE_EXCEEDED, "descriptors were not taken in time");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Takes over every descriptor that has come with `message`.
void take_descriptors(msghdr* message, std::vector<Descriptor>* taken) {
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      taken->emplace_back(fd);
    }
  }
}

Result<std::vector<Descriptor>> receive_descriptors(int stream, size_t count, uint64_t tag, Deadline deadline) {
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  uint64_t got_tag = 0;
  iovec payload{&got_tag, sizeof(got_tag)};
  msghdr message{};
  for (;;) {
    message.msg_iov = &payload;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(stream, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    std::vector<Descriptor> taken;
    if (got >= 0) take_descriptors(&message, &taken);
    if (got == 0) return error(MOEWAY_PEER_LOST, "the peer has closed its connection");
    if (got > 0) {
      const bool whole = (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0;
      if (got == static_cast<ssize_t>(sizeof(got_tag)) && whole && got_tag == tag && taken.size() == count)
        return taken;
      return error(MOEWAY_INTERNAL, "{} descriptors came with tag {}{}, expected {} with tag {}", taken.size(), got_tag,
                   whole ? "" : " (some were lost: no descriptors left?)", count, tag);
    }
    if (errno != EAGAIN && errno != EINTR) return system_error("recvmsg", errno, MOEWAY_PEER_LOST);
    if (!wait_for(stream, POLLIN, deadline)) {
      return error(MOEWAY_DEADLINE_EXCEEDED, "the peer sent no descriptors in time");
    }
  }
}

}  // namespace

Result<std::vector<Descriptor>> DescriptorExchange::all_gather(const Descriptor& mine, Collective& collective,
                                                               Deadline deadline) {
  ++call_;
  const Result<std::vector<uint8_t>> given = collective.all_gather_value<uint8_t>(mine.valid(), deadline);
  if (!given.ok()) return given.status();
  given_ = given.value();
  std::vector<Descriptor> all(given_.size());
  Status status;
  if (broken_) {
    status = error(MOEWAY_WRONG_STATE, "an earlier exchange of memory with the other ranks has failed");
  } else if (collective.rank() == 0) {
    status = as_center(mine, &all, deadline);
  } else {
    status = as_point(mine, collective.rank(), &all, deadline);
  }
  if (!status.ok() && !broken_) {
    broken_ = true;
    // Nobody need wait for descriptors that will not come.
    for (const Descriptor& stream : streams_) {
      if (stream.valid()) shutdown(stream.get(), SHUT_RDWR);
    }
  }
  status = collective.agree(status, deadline);
  if (!status.ok()) return status;
  return all;
}

Status DescriptorExchange::as_center(const Descriptor& mine, std::vector<Descriptor>* all, Deadline deadline) {
  for (size_t r = 1; r < all->size(); ++r) {
    if (given_[r] == 0) continue;
    Result<std::vector<Descriptor>> one = receive_descriptors(streams_[r].get(), 1, call_, deadline);
    if (!one.ok()) return error(one.status().code(), "from rank {}: {}", r, one.status().message());
    (*all)[r] = std::move(one.value()[0]);
  }
  std::vector<int> everybodys;
  for (size_t r = 0; r < all->size(); ++r) {
    if (given_[r] != 0) everybodys.push_back(r == 0 ? mine.get() : (*all)[r].get());
  }
  for (size_t r = 1; r < all->size(); ++r) {
    for (size_t first = 0; first < everybodys.size(); first += kMostPerMessage) {
      const size_t count = std::min(everybodys.size() - first, kMostPerMessage);
      const Status status =
          send_descriptors(streams_[r].get(), std::span(everybodys).subspan(first, count), call_ + first, deadline);
      if (!status.ok()) return error(status.code(), "to rank {}: {}", r, status.message());
    }
  }
  return {};
}

Status DescriptorExchange::as_point(const Descriptor& mine, int rank, std::vector<Descriptor>* all, Deadline deadline) {
  const int stream = streams_[0].get();
  if (mine.valid()) {
    const int descriptor = mine.get();
    if (Status status = send_descriptors(stream, std::span(&descriptor, 1), call_, deadline); !status.ok())
      return status;
  }
  std::vector<Descriptor> everybodys;
  const auto num_given =
      static_cast<size_t>(std::count_if(given_.begin(), given_.end(), [](auto g) { return g != 0; }));
  while (everybodys.size() < num_given) {
    const size_t count = std::min(num_given - everybodys.size(), kMostPerMessage);
    Result<std::vector<Descriptor>> some = receive_descriptors(stream, count, call_ + everybodys.size(), deadline);
    if (!some.ok()) return error(some.status().code(), "from rank 0: {}", some.status().message());
    std::move(some.value().begin(), some.value().end(), std::back_inserter(everybodys));
  }
  size_t next = 0;
  for (size_t r = 0; r < all->size(); ++r) {
    if (given_[r] != 0) (*all)[r] = std::move(everybodys[next++]);
  }
  (*all)[static_cast<size_t>(rank)].reset();
  return {};
}

}  // namespace moeway::transport
