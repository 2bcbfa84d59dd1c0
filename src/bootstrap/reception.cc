#include "bootstrap/reception.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>

#include "base/format.h"
#include "base/rank_list.h"
#include "base/stream.h"
#include "base/unix_socket.h"
#include "bootstrap/frame.h"
#include "bootstrap/handshake.h"
#include "bootstrap/remote_deadline.h"

namespace moeway::bootstrap {
namespace {

// Who has not proved to be a rank within this time has to connect again. Ranks answer in milliseconds; strangers may
// never.
constexpr std::chrono::milliseconds kProofLimit{5000};
// Connections that are still to prove themselves. Beyond it the oldest goes, so that a flood cannot use up descriptors;
// a rank that is hit connects again.
constexpr size_t kMostStrangers = 256;

enum class Stage { kGreeting, kProof, kAdmitted, kLeaving };

struct Guest {
  Guest(Descriptor stream, std::string address)
      : socket(std::move(stream)), from(std::move(address)), incoming(&greeting, sizeof(greeting)) {}

  Descriptor socket;
  std::string from;
  Stage stage = Stage::kGreeting;
  Deadline limit = Deadline::after(kProofLimit);
  Incoming incoming;
  Greeting greeting{};
  Nonces nonces{};
  Proof proof{};
};

// Who is at the other end, for messages.
std::string name_of(int fd, const sockaddr_storage& address, socklen_t length) {
  ucred peer{};
  socklen_t peer_length = sizeof(peer);
  if (address.ss_family == AF_UNIX && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) == 0)
    return fmt::format("process {}", peer.pid);
  std::array<char, 64> host{};
  std::array<char, 16> port{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(), port.data(),
                  port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  if (address.ss_family == AF_INET6) return fmt::format("[{}]:{}", host.data(), port.data());
  return fmt::format("{}:{}", host.data(), port.data());
}

class Receiver {
 public:
  Receiver(Descriptor listener, const Reception& reception, Deadline deadline)
      : listener_(std::move(listener)),
        reception_(reception),
        deadline_(deadline),
        ranks_(static_cast<size_t>(reception.num_ranks), nullptr) {}

  Result<std::vector<Descriptor>> run() {
    while (num_admitted_ + 1 < reception_.num_ranks && failure_.ok()) step();
    listener_.reset();
    if (reception_.on_end) reception_.on_end();
    std::vector<Descriptor> streams(ranks_.size());
    for (size_t r = 1; r < ranks_.size(); ++r) {
      Guest* const guest = ranks_[r];
      if (guest == nullptr) continue;
      const bool told = answer(*guest, Step::kMeeting, failure_);
      if (!told && failure_.ok()) failure_ = lost(static_cast<int>(r));
      streams[r] = std::move(guest->socket);
    }
    if (failure_.ok()) return streams;
    // Those who have just heard that all went well find this in their first all-gather.
    for (const Descriptor& stream : streams) {
      if (stream.valid()) send_failure(stream.get(), failure_, 0);
    }
    return failure_;
  }

 private:
  void step() {
    // When the deadline has passed, those who are already at the door are still let in, and a flood ends the loop too.
    const bool last = deadline_.passed();
    std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
    std::vector<Guest*> guests;
    Deadline next = deadline_;
    for (Guest& guest : guests_) {
      entries.push_back({guest.socket.get(), POLLIN, 0});
      guests.push_back(&guest);
      if (guest.stage != Stage::kAdmitted) next = sooner(next, guest.limit);
    }
    const int ready = poll(entries.data(), entries.size(), poll_timeout(next));
    for (size_t i = 0; ready > 0 && i < guests.size(); ++i) {
      if (entries[i + 1].revents != 0) hear(*guests[i]);
    }
    if (ready > 0 && entries[0].revents != 0) accept_all();
    for (Guest& guest : guests_) {
      if (guest.stage == Stage::kLeaving || guest.stage == Stage::kAdmitted || !guest.limit.passed()) continue;
      turn_away(guest, "it did not prove to be a rank in time");
      guest.socket.reset();
    }
    guests_.remove_if([](const Guest& guest) {
      return !guest.socket.valid() || (guest.stage == Stage::kLeaving && guest.limit.passed());
    });
    if (last && num_admitted_ + 1 < reception_.num_ranks && failure_.ok()) failure_ = missing();
  }

  void accept_all() {
    for (;;) {
      sockaddr_storage address{};
      socklen_t length = sizeof(address);
      Descriptor socket(
          accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        if (errno == EMFILE || errno == ENFILE) make_room(errno);
        return;  // Nobody there, or one that has gone again.
      }
      std::string name = name_of(socket.get(), address, length);
      guests_.emplace_back(std::move(socket), std::move(name));
      if (reception_.same_user && !peer_is_same_user(guests_.back().socket.get())) {
        turn_away(guests_.back(), "it belongs to another user");
        continue;
      }
      const auto is_stranger = [](const Guest& guest) { return guest.stage != Stage::kAdmitted; };
      if (static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(), is_stranger)) > kMostStrangers)
        make_room(EMFILE);
    }
  }

  // Closes the connection that has been a stranger's for longest.
  void make_room(int error_number) {
    for (auto guest = guests_.begin(); guest != guests_.end(); ++guest) {
      if (guest->stage == Stage::kAdmitted) continue;
      turn_away(*guest, "others came after it");
      guests_.erase(guest);
      return;
    }
    failure_ = system_error("accept4", error_number);
  }

  void hear(Guest& guest) {
    if (guest.stage == Stage::kLeaving) return drain(guest);
    if (guest.stage == Stage::kAdmitted) {
      // An admitted rank has nothing to say until all are there.
      failure_ = lost(static_cast<int>(guest.proof.claim.rank));
      return;
    }
    switch (guest.incoming.step(guest.socket.get())) {
      case Progress::kBlocked:
        return;
      case Progress::kClosed:
        turn_away(guest, "it closed the connection");
        guest.socket.reset();
        return;
      case Progress::kDone:
        break;
    }
    if (guest.stage == Stage::kGreeting) return take_greeting(guest);
    take_proof(guest);
  }

  void take_greeting(Guest& guest) {
    if (guest.greeting.magic != kRankMagic) return turn_away(guest, "it is no rank of a moeway job");
    const Result<Nonce> nonce = make_nonce();
    if (!nonce.ok()) {
      failure_ = nonce.status();
      return;
    }
    guest.nonces = {guest.greeting.nonce, nonce.value()};
    const Greeting greeting{kCenterMagic, kProtocolVersion, nonce.value()};
    if (Outgoing(&greeting, sizeof(greeting)).step(guest.socket.get()) != Progress::kDone)
      return turn_away(guest, "it closed the connection");
    if (guest.greeting.version != kProtocolVersion) {
      return turn_away(guest, fmt::format("it speaks version {} of the protocol, this rank 0 version {}",
                                          guest.greeting.version, kProtocolVersion));
    }
    guest.stage = Stage::kProof;
    guest.incoming = Incoming(&guest.proof, sizeof(guest.proof));
  }

  void take_proof(Guest& guest) {
    const Claim& claim = guest.proof.claim;
    if (!equal_in_constant_time(guest.proof.code, proof_code(reception_.secret, guest.nonces, claim))) {
      const Verdict verdict{StatusBytes::from(error(MOEWAY_MISMATCH, "another secret")), {}};
      Outgoing(&verdict, sizeof(verdict)).step(guest.socket.get());
      return turn_away(guest, "it holds another secret");
    }
    const Status status = check(guest);
    if (!answer(guest, Step::kAdmission, status) && status.ok()) return turn_away(guest, "it closed the connection");
    if (!status.ok()) {
      // A rank of this very job is started wrongly: the job cannot become whole, and everybody should know why.
      failure_ = status;
      return;
    }
    guest.stage = Stage::kAdmitted;
    ranks_[claim.rank] = &guest;
    ++num_admitted_;
    deadline_ = sooner(deadline_, deadline_from(claim.left_ms));
  }

  Status check(const Guest& guest) {
    const Claim& claim = guest.proof.claim;
    const auto num_ranks = static_cast<uint32_t>(reception_.num_ranks);
    if (claim.num_ranks != num_ranks) {
      return error(MOEWAY_MISMATCH, "rank {} (from {}) has num_ranks {}, rank 0 has {}", claim.rank, guest.from,
                   claim.num_ranks, num_ranks);
    }
    if (claim.rank >= num_ranks) {
      return error(MOEWAY_MISMATCH, "{} calls itself rank {} of {}", guest.from, claim.rank, num_ranks);
    }
    if (claim.rank == 0 || ranks_[claim.rank] != nullptr) {
      const std::string first = claim.rank == 0 ? reception_.where : ranks_[claim.rank]->from;
      return error(MOEWAY_MISMATCH, "two processes call themselves rank {}: {} and {}", claim.rank, first, guest.from);
    }
    return {};
  }

  // False if the guest cannot be told any more.
  bool answer(Guest& guest, Step step, const Status& outcome) {
    Verdict verdict{StatusBytes::from(outcome), {}};
    verdict.code = verdict_code(reception_.secret, guest.nonces, guest.proof.claim, step, verdict.outcome);
    return Outgoing(&verdict, sizeof(verdict)).step(guest.socket.get()) == Progress::kDone;
  }

  // The guest may read what it was told, then the connection closes.
  void turn_away(Guest& guest, std::string why) {
    ++num_turned_away_;
    last_turned_away_ = fmt::format("{}: {}", guest.from, why);
    guest.stage = Stage::kLeaving;
    guest.limit = Deadline::after(std::chrono::milliseconds(1000));
    shutdown(guest.socket.get(), SHUT_WR);
  }

  static void drain(Guest& guest) {
    std::array<std::byte, 4096> unread;
    const ssize_t got = recv(guest.socket.get(), unread.data(), unread.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) guest.socket.reset();
  }

  Status lost(int rank) const {
    const std::vector<int> absent = absent_ranks();
    return error(MOEWAY_PEER_LOST, "rank {} has gone, or given up{}", rank,
                 absent.empty() ? "" : fmt::format(", while all waited for {}", rank_list(absent)));
  }

  Status missing() const {
    std::string turned_away;
    if (num_turned_away_ > 0) {
      turned_away = fmt::format("; connections turned away: {}, the last from {}", num_turned_away_, last_turned_away_);
    }
    return error(MOEWAY_DEADLINE_EXCEEDED, "{} of {} did not come to {} in time{}", rank_list(absent_ranks()),
                 reception_.num_ranks, reception_.where, turned_away);
  }

  std::vector<int> absent_ranks() const {
    std::vector<int> absent;
    for (size_t r = 1; r < ranks_.size(); ++r) {
      if (ranks_[r] == nullptr) absent.push_back(static_cast<int>(r));
    }
    return absent;
  }

  Descriptor listener_;
  const Reception& reception_;
  Deadline deadline_;
  std::list<Guest> guests_;
  std::vector<Guest*> ranks_;  // Who is admitted.
  int num_admitted_ = 0;
  Status failure_;
  int num_turned_away_ = 0;
  std::string last_turned_away_;
};

}  // namespace

Result<std::vector<Descriptor>> receive_ranks(Descriptor listener, const Reception& reception, Deadline deadline) {
  return Receiver(std::move(listener), reception, deadline).run();
}

}  // namespace moeway::bootstrap
