// The meeting over sockets, from both ends: guests that say anything to rank 0, and a rank 0 that says anything to a rank.
// Some of them know the secret, so that what comes behind the proof is reached too.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "base/stream.h"
#include "bootstrap/handshake.h"
#include "bootstrap/join.h"
#include "bootstrap/reception.h"
#include "fuzz/input.h"

namespace moeway::fuzz {
namespace {

constexpr const char* kSecret = "secret";
constexpr int kNumRanks = 3;
const auto kTimeout = std::chrono::milliseconds(10);

Deadline soon() { return Deadline::after(kTimeout); }

// A struct of the protocol as it should be, with the input's bytes over it.
template <class T>
T changed(T value, Input& input) {
  const Bytes change = input.piece();
  std::copy_n(change.begin(), std::min(change.size(), sizeof(T)), reinterpret_cast<uint8_t*>(&value));
  return value;
}

template <class T>
bool send(const Descriptor& stream, const T& value, size_t bytes = sizeof(T)) {
  return send_all(stream.get(), &value, std::min(bytes, sizeof(T)), soon()) == Progress::kDone;
}

// One who knocks at rank 0.
void play_guest(const sockaddr_un& address, socklen_t length, Input input) {
  const Descriptor stream(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(stream.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return;
  const auto greeting = changed(bootstrap::Greeting{bootstrap::kRankMagic, bootstrap::kProtocolVersion, {}}, input);
  if (!send(stream, greeting, input.byte() == 0 ? sizeof(greeting) : input.byte())) return;
  bootstrap::Greeting center{};
  if (receive_all(stream.get(), &center, sizeof(center), soon()) != Progress::kDone) return;
  bootstrap::Proof proof{};
  proof.claim = changed(bootstrap::Claim{1, kNumRanks, 1000}, input);
  if (input.byte() % 8 != 0) proof.code = bootstrap::proof_code(kSecret, {greeting.nonce, center.nonce}, proof.claim);
  if (!send(stream, proof)) return;
  const Bytes rest = input.piece();
  if (!rest.empty()) send_all(stream.get(), rest.data(), rest.size(), soon());
  bootstrap::Verdict verdict{};
  receive_all(stream.get(), &verdict, sizeof(verdict), soon());
}

// Two guests, each with a part of the input.
void receive(Input& input) {
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof(address);
  // Bound without a name, the socket gets an abstract one.
  require(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address.sun_family)) == 0 &&
              getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
              listen(listener.get(), 4) == 0,
          "a listening socket");
  const Input first(input.piece());
  const Input second(input.rest());
  std::jthread one([&] { play_guest(address, length, first); });
  std::jthread two([&] { play_guest(address, length, second); });
  bootstrap::Reception reception;
  reception.where = "here";
  reception.secret = kSecret;
  reception.num_ranks = kNumRanks;
  const auto streams = bootstrap::receive_ranks(std::move(listener), reception, soon());
  require_readable(streams.status());
  if (streams.ok()) require(streams.value()[1].valid() && streams.value()[2].valid(), "all ranks have a stream");
}

// Who answers in rank 0's place.
void play_center(Descriptor stream, Input& input) {
  const auto mine = changed(bootstrap::Greeting{bootstrap::kCenterMagic, bootstrap::kProtocolVersion, {}}, input);
  bootstrap::Greeting greeting{};
  bootstrap::Proof proof{};
  if (receive_all(stream.get(), &greeting, sizeof(greeting), soon()) != Progress::kDone || !send(stream, mine) ||
      receive_all(stream.get(), &proof, sizeof(proof), soon()) != Progress::kDone)
    return;
  for (const auto step : {bootstrap::Step::kAdmission, bootstrap::Step::kMeeting}) {
    bootstrap::Verdict verdict{};
    verdict.outcome = changed(verdict.outcome, input);
    if (input.byte() % 8 != 0)
      verdict.code = bootstrap::verdict_code(kSecret, {greeting.nonce, mine.nonce}, proof.claim, step, verdict.outcome);
    if (!send(stream, verdict, input.byte() == 0 ? sizeof(verdict) : input.byte())) return;
  }
}

void join(Input& input) {
  std::jthread center;
  int num_attempts = 0;
  bootstrap::Joining joining;
  joining.where = "there";
  joining.secret = kSecret;
  joining.rank = 1;
  joining.num_ranks = kNumRanks;
  joining.connect = [&](Deadline) -> bootstrap::Attempt {
    if (num_attempts++ > 0) return {{}, "nobody answers any more"};
    std::array<int, 2> ends{};
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, "a pair of sockets");
    center = std::jthread([theirs = ends[1], &input] { play_center(Descriptor(theirs), input); });
    return {Descriptor(ends[0]), ""};
  };
  require_readable(bootstrap::join_ranks(joining, soon()).status());
}

// Byte 0: which end is looked at.
void run(Bytes bytes) {
  Input input(bytes);
  if (input.byte() % 2 == 0) {
    receive(input);
  } else {
    join(input);
  }
}

const Registration kTarget("meeting", run);

}  // namespace
}  // namespace moeway::fuzz
