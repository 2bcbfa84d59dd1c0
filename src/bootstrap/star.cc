#include "bootstrap/star.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/rank_list.h"
#include "base/stream.h"
#include "bootstrap/counted_collective.h"
#include "bootstrap/frame.h"
#include "bootstrap/remote_deadline.h"

namespace moeway::bootstrap {
namespace {

// A socket that is closed with unread bytes resets the connection, and what was sent last may be lost with it.
void close_gently(Descriptor& stream) {
  if (!stream.valid()) return;
  shutdown(stream.get(), SHUT_WR);
  std::array<std::byte, 4096> unread;
  for (int i = 0; i < 256 && recv(stream.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0; ++i) {
  }
  stream.reset();
}

class StarCenter final : public CountedCollective {
 public:
  explicit StarCenter(std::vector<Descriptor> streams)
      : CountedCollective(0, static_cast<int>(streams.size())), streams_(std::move(streams)) {
    for (int r = 0; r < size(); ++r) peers_.push_back(Peer{FrameReader(0, r), {}, false, false});
  }
  ~StarCenter() override {
    if (!is_owner()) return;
    for (Descriptor& stream : streams_) close_gently(stream);
  }

 private:
  struct Peer {
    FrameReader reader;
    Outgoing outgoing;
    bool arrived;
    bool lost;
  };
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  int stream(int rank) const { return streams_[static_cast<size_t>(rank)].get(); }

  Status gather(const void* in, size_t bytes, void* out, Deadline deadline) override {
    auto* const place = static_cast<std::byte*>(out);
    if (bytes > 0) std::memmove(place, in, bytes);
    for (int r = 1; r < size(); ++r) {
      peer(r).arrived = peer(r).lost = false;
      peer(r).reader.expect(FrameKind::kGather, call(), bytes,
                            bytes > 0 ? place + static_cast<size_t>(r) * bytes : nullptr, bytes);
    }
    if (Status status = collect(deadline); !status.ok()) {
      leave(status);
      return status;
    }
    return deliver(out, bytes, deadline);
  }

  void leave(const Status& why) override {
    for (int r = 1; r < size(); ++r) {
      if (!peer(r).lost) send_failure(stream(r), why, call());
    }
  }

  // The others take what rank 0 says for its word about anybody.
  void give_up(const Status& why) override { leave(error(why.code(), "rank 0: {}", why.message())); }

  // Reads everybody's bytes. Also listens to those who have delivered theirs: they may fail or end meanwhile.
  Status collect(Deadline deadline) {
    std::vector<pollfd> entries(streams_.size(), pollfd{-1, POLLIN, 0});
    for (int r = 1; r < size(); ++r) entries[static_cast<size_t>(r)].fd = stream(r);
    while (!all_arrived()) {
      const bool late = deadline.passed();
      const int ready = poll(entries.data(), entries.size(), late ? 0 : poll_timeout(deadline));
      if (ready <= 0 && late) return missing();
      for (int r = 1; r < size(); ++r) {
        if (ready <= 0 || entries[static_cast<size_t>(r)].revents == 0) continue;
        if (Status status = hear(r, &deadline); !status.ok()) return status;
      }
    }
    return {};
  }

  // Reads what rank r has sent. A failure may be right behind its bytes.
  Status hear(int r, Deadline* deadline) {
    for (;;) {
      switch (peer(r).reader.step(stream(r))) {
        case FrameReader::Outcome::kBlocked:
          return {};
        case FrameReader::Outcome::kComplete:
          peer(r).arrived = true;
          // Rank 0 alone can say who is missing, so it does so before the first of those who wait gives up.
          *deadline = sooner(*deadline, deadline_from(peer(r).reader.header().left_ms));
          peer(r).reader.expect_nothing(call());
          break;
        case FrameReader::Outcome::kClosed:
          peer(r).lost = true;
          return error(MOEWAY_PEER_LOST, "rank {} has closed its connection, the others are in all-gather {}", r,
                       call());
        case FrameReader::Outcome::kFailed:
          return failed(r);
      }
    }
  }

  Status failed(int r) {
    const Status& why = peer(r).reader.failure();
    const bool told = peer(r).reader.header().kind == FrameKind::kFailure;
    return told ? error(why.code(), "rank {}: {}", r, why.message()) : why;
  }

  Status missing() const {
    std::vector<int> ranks;
    for (int r = 1; r < size(); ++r) {
      if (!peers_[static_cast<size_t>(r)].arrived) ranks.push_back(r);
    }
    return error(MOEWAY_DEADLINE_EXCEEDED, "{} of {} did not come to all-gather {} in time", rank_list(ranks), size(),
                 call());
  }

  // Everybody has come, so whoever can be reached gets the result, also if another rank is lost meanwhile.
  Status deliver(const void* out, size_t bytes, Deadline deadline) {
    const FrameHeader header{kFrameMagic, FrameKind::kResult, call(), bytes, 0};
    std::vector<pollfd> entries(streams_.size(), pollfd{-1, POLLOUT, 0});
    for (int r = 1; r < size(); ++r) {
      peer(r).outgoing = Outgoing(&header, sizeof(header), out, bytes * static_cast<size_t>(size()));
      entries[static_cast<size_t>(r)].fd = stream(r);
    }
    std::vector<int> lost;
    for (;;) {
      int num_open = 0;
      for (int r = 1; r < size(); ++r) {
        int& fd = entries[static_cast<size_t>(r)].fd;
        if (fd < 0) continue;
        const Progress progress = peer(r).outgoing.step(fd);
        if (progress == Progress::kClosed) {
          peer(r).lost = true;
          lost.push_back(r);
        }
        if (progress == Progress::kBlocked) {
          ++num_open;
        } else {
          fd = -1;
        }
      }
      if (num_open == 0) break;
      if (poll(entries.data(), entries.size(), poll_timeout(deadline)) <= 0 && deadline.passed()) break;
    }
    std::sort(lost.begin(), lost.end());
    return delivered(lost, deadline);
  }

  Status delivered(const std::vector<int>& lost, Deadline deadline) {
    std::vector<int> slow;
    for (int r = 1; r < size(); ++r) {
      if (peer(r).lost || peer(r).outgoing.done()) continue;
      // Half a result is on its way to this rank; a failure frame behind it would be taken for the rest.
      shutdown(stream(r), SHUT_RDWR);
      peer(r).lost = true;
      slow.push_back(r);
    }
    Status why;
    // Rank 0 may be late, and then finds what they said before they left.
    for (const int r : lost) why = why.ok() ? hear(r, &deadline) : why;
    if (why.ok() && !lost.empty()) why = error(MOEWAY_PEER_LOST, "{} closed the connection", rank_list(lost));
    if (why.ok() && !slow.empty()) {
      why = error(MOEWAY_DEADLINE_EXCEEDED, "{} did not take the result of all-gather {} in time", rank_list(slow),
                  call());
    }
    if (!why.ok()) leave(why);
    return why;
  }

  bool all_arrived() const {
    return std::all_of(peers_.begin() + 1, peers_.end(), [](const Peer& other) { return other.arrived; });
  }

  std::vector<Descriptor> streams_;
  std::vector<Peer> peers_;
};

class StarPoint final : public CountedCollective {
 public:
  StarPoint(Descriptor stream, int rank, int num_ranks)
      : CountedCollective(rank, num_ranks), stream_(std::move(stream)), reader_(rank, 0) {}
  ~StarPoint() override {
    if (is_owner()) close_gently(stream_);
  }

 private:
  Status gather(const void* in, size_t bytes, void* out, Deadline deadline) override {
    const FrameHeader header{kFrameMagic, FrameKind::kGather, call(), bytes, left_ms(deadline)};
    Outgoing outgoing(&header, sizeof(header), in, bytes);
    reader_.expect(FrameKind::kResult, call(), bytes, out, bytes * static_cast<size_t>(size()));
    Status status = exchange(outgoing, deadline);
    // Rank 0 tells the others; a failure frame inside half a gather frame would be taken for its rest.
    if (!status.ok() && (outgoing.done() || !outgoing.started())) leave(status);
    if (!status.ok()) shutdown(stream_.get(), SHUT_WR);
    return status;
  }

  void leave(const Status& why) override { send_failure(stream_.get(), why, call()); }

  Status exchange(Outgoing& outgoing, Deadline deadline) {
    const Deadline last_word = with_grace(deadline);
    bool writable = true;
    for (;;) {
      // Read first: rank 0 may have closed after a failure frame, which is still there when writing already fails.
      switch (reader_.step(stream_.get())) {
        case FrameReader::Outcome::kBlocked:
          break;
        case FrameReader::Outcome::kComplete:
          return {};
        case FrameReader::Outcome::kClosed:
          return error(MOEWAY_PEER_LOST, "rank 0 has closed its connection");
        case FrameReader::Outcome::kFailed:
          return reader_.failure();
      }
      if (writable && !outgoing.done() && outgoing.step(stream_.get()) == Progress::kClosed) writable = false;
      if (last_word.passed()) {
        return error(MOEWAY_DEADLINE_EXCEEDED, "rank 0 did not come to all-gather {} in time", call());
      }
      const short events = writable && !outgoing.done() ? POLLIN | POLLOUT : POLLIN;
      wait_for(stream_.get(), events, last_word);
    }
  }

  Descriptor stream_;
  FrameReader reader_;
};

}  // namespace

std::unique_ptr<Collective> make_star_center(std::vector<Descriptor> streams) {
  return std::make_unique<StarCenter>(std::move(streams));
}

std::unique_ptr<Collective> make_star_point(Descriptor stream, int rank, int num_ranks) {
  return std::make_unique<StarPoint>(std::move(stream), rank, num_ranks);
}

}  // namespace moeway::bootstrap
