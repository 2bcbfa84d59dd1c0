#include "bootstrap/join.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "base/format.h"
#include "base/stream.h"
#include "bootstrap/handshake.h"
#include "bootstrap/remote_deadline.h"

namespace moeway::bootstrap {
namespace {

// How long somebody else may hold rank 0's place before it is taken for a mistake: a job that has just been killed
// needs a moment to leave its port.
constexpr std::chrono::milliseconds kForeignGrace{1000};
constexpr std::chrono::milliseconds kLongestPause{20};

class Joiner {
 public:
  Joiner(const Joining& joining, Deadline deadline) : joining_(joining), deadline_(deadline) {}

  Result<Descriptor> run() {
    std::chrono::milliseconds pause{1};
    for (;;) {
      Attempt attempt = joining_.connect(deadline_);
      if (attempt.stream.valid()) {
        const std::optional<Status> outcome = handshake(attempt.stream.get());
        if (outcome && !outcome->ok()) return *outcome;
        if (outcome) return std::move(attempt.stream);
      } else {
        problem_ = attempt.problem;
        foreign_until_.reset();
      }
      if (deadline_.passed()) {
        return error(MOEWAY_DEADLINE_EXCEEDED, "rank {} could not reach rank 0 at {} in time: {}", joining_.rank,
                     joining_.where, problem_);
      }
      std::this_thread::sleep_for(std::min(pause, deadline_.left()));
      pause = std::min(pause * 2, kLongestPause);
    }
  }

 private:
  // Nothing: try again; problem_ says why.
  std::optional<Status> handshake(int fd) {
    const Result<Nonce> nonce = make_nonce();
    if (!nonce.ok()) return nonce.status();
    const Greeting mine{kRankMagic, kProtocolVersion, nonce.value()};
    Greeting theirs{};
    if (send_all(fd, &mine, sizeof(mine), deadline_) != Progress::kDone) return retry("it closed the connection");
    if (const Progress got = receive_all(fd, &theirs, sizeof(theirs), deadline_); got != Progress::kDone)
      return retry(got == Progress::kClosed ? "it closed the connection" : "it does not answer");
    if (theirs.magic != kCenterMagic) return foreign("it is not rank 0 of a moeway job");
    if (theirs.version != kProtocolVersion) {
      return error(MOEWAY_MISMATCH, "rank 0 at {} speaks version {} of the protocol, rank {} version {}",
                   joining_.where, theirs.version, joining_.rank, kProtocolVersion);
    }
    nonces_ = {nonce.value(), theirs.nonce};
    claim_ = {static_cast<uint32_t>(joining_.rank), static_cast<uint32_t>(joining_.num_ranks), left_ms(deadline_)};
    const Proof proof{claim_, proof_code(joining_.secret, nonces_, claim_)};
    if (send_all(fd, &proof, sizeof(proof), deadline_) != Progress::kDone) return retry("it closed the connection");
    return take_verdicts(fd);
  }

  std::optional<Status> take_verdicts(int fd) {
    Verdict verdict{};
    if (const Progress got = receive_all(fd, &verdict, sizeof(verdict), deadline_); got != Progress::kDone)
      return retry(got == Progress::kClosed ? "it closed the connection" : "it does not answer");
    if (!is_genuine(verdict, Step::kAdmission)) return foreign("it holds another secret than this rank");
    if (!verdict.outcome.ok()) return verdict.outcome.failure();
    const Progress got = receive_all(fd, &verdict, sizeof(verdict), with_grace(deadline_));
    if (got == Progress::kBlocked) {
      return error(MOEWAY_DEADLINE_EXCEEDED, "rank 0 at {} did not say in time whether all {} ranks are there",
                   joining_.where, joining_.num_ranks);
    }
    if (got == Progress::kClosed) {
      return error(MOEWAY_PEER_LOST, "rank 0 at {} closed its connection before all {} ranks were there",
                   joining_.where, joining_.num_ranks);
    }
    if (!is_genuine(verdict, Step::kMeeting)) {
      return error(MOEWAY_INTERNAL, "rank 0 at {} sent bytes that do not belong to the meeting", joining_.where);
    }
    if (!verdict.outcome.ok()) return verdict.outcome.failure();
    return Status();
  }

  bool is_genuine(const Verdict& verdict, Step step) const {
    return equal_in_constant_time(verdict.code, verdict_code(joining_.secret, nonces_, claim_, step, verdict.outcome));
  }

  std::optional<Status> retry(std::string problem) {
    problem_ = std::move(problem);
    return std::nullopt;
  }

  std::optional<Status> foreign(const char* problem) {
    if (!foreign_until_) foreign_until_ = Deadline::after(kForeignGrace);
    if (!foreign_until_->passed()) return retry(problem);
    return error(MOEWAY_MISMATCH, "rank {} has reached somebody else than its rank 0 at {}: {}", joining_.rank,
                 joining_.where, problem);
  }

  const Joining& joining_;
  const Deadline deadline_;
  std::string problem_ = "no answer";
  std::optional<Deadline> foreign_until_;  // When it is up, somebody else has held rank 0's place for too long.
  Nonces nonces_{};
  Claim claim_{};
};

}  // namespace

Result<Descriptor> join_ranks(const Joining& joining, Deadline deadline) { return Joiner(joining, deadline).run(); }

}  // namespace moeway::bootstrap
