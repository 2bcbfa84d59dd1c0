// Ranks as processes that meet over TCP, and those who should not be let in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <random>

#include "base/descriptor.h"
#include "base/stream.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/handshake.h"
#include "bootstrap/resolve.h"
#include "unit/collective_checks.h"
#include "unit/loopback.h"
#include "unit/rank_processes.h"

namespace moeway::bootstrap {
namespace {

using ::moeway::unit::all_well;
using ::moeway::unit::connect_at;
using ::moeway::unit::free_port;
using ::moeway::unit::gather_outcome;
using ::moeway::unit::gathers_in_rank_order;
using ::moeway::unit::in_ms;
using ::moeway::unit::listen_at;
using ::moeway::unit::loopback;
using ::moeway::unit::RankProcesses;
using ::moeway::unit::run_processes;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr milliseconds kTcpPatience{15000};
const std::string kHost = "127.0.0.1";
const std::string kSecret = "what only this job knows";

std::string meet_and_gather(int port, int rank, int num_ranks) {
  const auto collective = meet_tcp(kHost, port, kSecret, rank, num_ranks, kTcpPatience);
  return collective.ok() ? gathers_in_rank_order(*collective.value()) : collective.status().to_string();
}

std::string meet(int port, int rank, int num_ranks, int ms, const std::string& secret = kSecret) {
  return meet_tcp(kHost, port, secret, rank, num_ranks, milliseconds(ms)).status().to_string();
}

TEST(Tcp, GathersEverybodysBytesInRankOrder) {
  for (const int num_ranks : {1, 2, 5, 24}) {
    const int port = free_port();
    EXPECT_EQ(run_processes(num_ranks, [&](int rank) { return meet_and_gather(port, rank, num_ranks); }),
              all_well(num_ranks));
  }
}

TEST(Tcp, MeetsAtANameToo) {
  const int port = free_port();
  const auto outcomes = run_processes(3, [&](int rank) {
    const auto collective = meet_tcp("localhost", port, kSecret, rank, 3, kTcpPatience);
    return collective.ok() ? gathers_in_rank_order(*collective.value()) : collective.status().to_string();
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(Tcp, MeetsAtThisMachinesName) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  if (const auto known = resolve(name.data(), 80, in_ms(5000)); !known.ok()) GTEST_SKIP() << known.status().message();
  const int port = free_port();
  const auto outcomes = run_processes(
      2, [&](int rank) { return meet_tcp(name.data(), port, kSecret, rank, 2, kTcpPatience).status().to_string(); });
  EXPECT_THAT(outcomes, Each("OK"));
}

TEST(Tcp, MeetsAgainAndAgainAtOnePort) {
  const int port = free_port();
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    for (int job = 0; job < 20; ++job) {
      const auto collective = meet_tcp(kHost, port, kSecret, rank, 3, kTcpPatience);
      if (!collective.ok()) return fmt::format("job {}: {}", job, collective.status().to_string());
      const auto all = collective.value()->all_gather_value(job, in_ms(10000));
      if (!all.ok()) return all.status().to_string();
      if (all.value() != std::vector<int>(3, job)) return "jobs are mixed";
    }
    return "";
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(Tcp, WaitsForARankZeroThatComesLater) {
  const int port = free_port();
  const auto outcomes = run_processes(3, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(milliseconds(400));
    return meet_and_gather(port, rank, 3);
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(Tcp, TurnsAwayARankWithAnotherSecret) {
  const int port = free_port();
  const auto outcomes = run_processes(3, [&](int rank) {
    return meet(port, rank, 3, rank == 2 ? 10000 : 2000, rank == 2 ? "what another job knows" : kSecret);
  });
  EXPECT_THAT(outcomes[2], AllOf(HasSubstr("MISMATCH"), HasSubstr("it holds another secret than this rank")));
  for (const size_t rank : {0u, 1u}) {
    EXPECT_THAT(outcomes[rank], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("rank 2 of 3 did not come"),
                                      HasSubstr("turned away"), HasSubstr("it holds another secret")));
  }
}

TEST(Tcp, LetsNobodyPassForRankZero) {
  int port = 0;
  const Descriptor listener = listen_at(&port);
  RankProcesses rank(1, [&](int) { return meet(port, 1, 2, 5000); });
  // An impostor that knows the protocol but not the secret, and admits whoever comes.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const Descriptor stream(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Greeting greeting{};
    if (receive_all(stream.get(), &greeting, sizeof(greeting), in_ms(1000)) != Progress::kDone) break;
    const Greeting mine{kCenterMagic, kProtocolVersion, greeting.nonce};
    send_all(stream.get(), &mine, sizeof(mine), in_ms(1000));
    Proof proof{};
    receive_all(stream.get(), &proof, sizeof(proof), in_ms(1000));
    Verdict verdict{};
    // Playing the rank's own code back does not help.
    verdict.code = proof.code;
    send_all(stream.get(), &verdict, sizeof(verdict), in_ms(1000));
    if (!wait_for(listener.get(), POLLIN, in_ms(300))) break;
  }
  EXPECT_THAT(rank.outcomes(kTcpPatience)[0], AllOf(HasSubstr("MISMATCH"), HasSubstr("holds another secret")));
}

TEST(Tcp, NeverSendsTheSecret) {
  int port = 0;
  const Descriptor listener = listen_at(&port);
  RankProcesses rank(1, [&](int) { return meet(port, 1, 2, 700); });
  const Descriptor stream(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::string seen(sizeof(Greeting), '\0');
  ASSERT_EQ(receive_all(stream.get(), seen.data(), seen.size(), in_ms(5000)), Progress::kDone);
  const Greeting mine{kCenterMagic, kProtocolVersion, {}};
  send_all(stream.get(), &mine, sizeof(mine), in_ms(1000));
  std::string proof(sizeof(Proof), '\0');
  ASSERT_EQ(receive_all(stream.get(), proof.data(), proof.size(), in_ms(5000)), Progress::kDone);
  seen += proof;
  for (size_t at = 0; at + 6 <= kSecret.size(); ++at)
    EXPECT_EQ(seen.find(kSecret.substr(at, 6)), std::string::npos) << "byte " << at << " of the secret";
  EXPECT_THAT(rank.outcomes(kTcpPatience)[0], HasSubstr("it does not answer"));
}

TEST(Tcp, LetsNoRecordedProofInAgain) {
  const int port = free_port();
  // Between rank 1 and rank 0 stands somebody who lets them meet and keeps what rank 1 said.
  int middle = 0;
  const Descriptor listener = listen_at(&middle);
  RankProcesses ranks(2, [&](int rank) { return meet(rank == 0 ? port : middle, rank, 3, 1500); });
  const Descriptor one(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const Descriptor zero = connect_at(port);
  Greeting hello{}, answer{};
  Proof proof{};
  ASSERT_EQ(receive_all(one.get(), &hello, sizeof(hello), in_ms(5000)), Progress::kDone);
  send_all(zero.get(), &hello, sizeof(hello), in_ms(1000));
  ASSERT_EQ(receive_all(zero.get(), &answer, sizeof(answer), in_ms(5000)), Progress::kDone);
  send_all(one.get(), &answer, sizeof(answer), in_ms(1000));
  ASSERT_EQ(receive_all(one.get(), &proof, sizeof(proof), in_ms(5000)), Progress::kDone);
  // The same words in another conversation, whose nonce of rank 0's is another.
  const Descriptor again = connect_at(port);
  send_all(again.get(), &hello, sizeof(hello), in_ms(1000));
  ASSERT_EQ(receive_all(again.get(), &answer, sizeof(answer), in_ms(5000)), Progress::kDone);
  send_all(again.get(), &proof, sizeof(proof), in_ms(1000));
  Verdict verdict{};
  ASSERT_EQ(receive_all(again.get(), &verdict, sizeof(verdict), in_ms(5000)), Progress::kDone);
  EXPECT_EQ(verdict.outcome.code, MOEWAY_MISMATCH);
  EXPECT_THAT(ranks.outcomes(kTcpPatience)[0], HasSubstr("ranks 1-2 of 3 did not come"));
}

TEST(Tcp, IsNotDelayedByStrangers) {
  const int port = free_port();
  RankProcesses ranks(4, [&](int rank) {
    // Rank 0 is at the door with the strangers for a while before its own ranks come.
    if (rank > 0) std::this_thread::sleep_for(milliseconds(300));
    const auto begin = std::chrono::steady_clock::now();
    const std::string outcome = meet_and_gather(port, rank, 4);
    if (std::chrono::steady_clock::now() - begin > milliseconds(4000)) return std::string("took too long");
    return outcome;
  });
  std::mt19937 random(7);
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(connect_at(port));
    std::string garbage(static_cast<size_t>(i) * 37, '\0');
    for (char& byte : garbage) byte = static_cast<char>(random());
    if (i % 4 == 0) garbage = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (i % 4 == 1) garbage.clear();  // Says nothing.
    if (i % 4 == 2) {                 // Half a greeting.
      const Greeting greeting{kRankMagic, kProtocolVersion, {}};
      garbage.assign(reinterpret_cast<const char*>(&greeting), 20);
    }
    send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    if (i % 5 == 0) strangers.back().reset();
  }
  EXPECT_EQ(ranks.outcomes(kTcpPatience), all_well(4));
}

TEST(Tcp, IsNotKeptOutByAFlood) {
  const int port = free_port();
  RankProcesses ranks(3, [&](int rank) {
    if (rank > 0) std::this_thread::sleep_for(milliseconds(300));
    return meet_and_gather(port, rank, 3);
  });
  // More than rank 0 keeps, all silent: the first have to go.
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(connect_at(port));
  EXPECT_TRUE(wait_for(strangers[0].get(), POLLIN, in_ms(200))) << "a stranger's connection is kept beyond any number";
  EXPECT_EQ(ranks.outcomes(kTcpPatience), all_well(3));
}

TEST(Tcp, IsNotKeptOutWhenItHasNoDescriptorLeft) {
  const int port = free_port();
  RankProcesses ranks(3, [&](int rank) -> std::string {
    const rlimit few{40, 40};
    if (rank == 0 && setrlimit(RLIMIT_NOFILE, &few) != 0) return "no limit";
    if (rank > 0) std::this_thread::sleep_for(milliseconds(300));
    return meet_and_gather(port, rank, 3);
  });
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(connect_at(port));
  EXPECT_EQ(ranks.outcomes(kTcpPatience), all_well(3));
}

TEST(Tcp, MeetsOverIpv6) {
  const Descriptor probe(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  socklen_t length = sizeof(address);
  if (bind(probe.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) GTEST_SKIP() << "no IPv6 on this machine";
  getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length);
  const int port = ntohs(address.sin6_port);
  EXPECT_THAT(meet_tcp("::1", port, kSecret, 0, 2, milliseconds(100)).status().message(),
              HasSubstr(fmt::format("cannot listen at [::1]:{}", port)));
  const int free = free_port();
  const auto outcomes = run_processes(
      2, [&](int rank) { return meet_tcp("::1", free, kSecret, rank, 2, kTcpPatience).status().to_string(); });
  EXPECT_THAT(outcomes, Each("OK"));
}

TEST(Tcp, TellsBothOfDifferentProtocolVersions) {
  const int port = free_port();
  RankProcesses rank_zero(1, [&](int) { return meet(port, 0, 2, 800); });
  const Descriptor stream = connect_at(port);
  const Greeting newer{kRankMagic, kProtocolVersion + 1, {}};
  send_all(stream.get(), &newer, sizeof(newer), in_ms(1000));
  Greeting answer{};
  ASSERT_EQ(receive_all(stream.get(), &answer, sizeof(answer), in_ms(5000)), Progress::kDone);
  EXPECT_EQ(answer.version, kProtocolVersion);
  EXPECT_THAT(rank_zero.outcomes(kTcpPatience)[0],
              HasSubstr("it speaks version 2 of the protocol, this rank 0 version 1"));

  int other_port = 0;
  const Descriptor listener = listen_at(&other_port);
  RankProcesses rank_one(1, [&](int) { return meet(other_port, 1, 2, 5000); });
  const Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const Greeting newer_zero{kCenterMagic, kProtocolVersion + 1, {}};
  send_all(accepted.get(), &newer_zero, sizeof(newer_zero), in_ms(1000));
  EXPECT_THAT(rank_one.outcomes(kTcpPatience)[0],
              AllOf(HasSubstr("MISMATCH"), HasSubstr("speaks version 2 of the protocol, rank 1 version 1")));
}

TEST(Tcp, TellsEverybodyOfTwoProcessesWithOneRank) {
  const int port = free_port();
  const auto outcomes = run_processes(4, [&](int process) {
    return process == 3 ? std::string("absent") : meet(port, process == 2 ? 1 : process, 4, 5000);
  });
  EXPECT_THAT(outcomes[0], AllOf(HasSubstr("MISMATCH"), HasSubstr("two processes call themselves rank 1: 127.0.0.1")));
  EXPECT_EQ(outcomes[1], outcomes[0]);
  EXPECT_EQ(outcomes[2], outcomes[0]);
}

TEST(Tcp, TellsEverybodyOfAnotherWorldSize) {
  const int port = free_port();
  const auto outcomes = run_processes(
      3, [&](int rank) { return rank == 1 ? std::string("absent") : meet(port, rank, rank == 2 ? 8 : 3, 5000); });
  for (const size_t rank : {0u, 2u})
    EXPECT_THAT(outcomes[rank], AllOf(HasSubstr("MISMATCH"), HasSubstr("has num_ranks 8, rank 0 has 3")));
}

TEST(Tcp, NamesOnAllRanksWhoDidNotComeToTheMeeting) {
  const int port = free_port();
  const auto outcomes = run_processes(4, [&](int rank) {
    // Rank 0's own patience is longer than that of those who wait with it.
    return rank == 2 ? std::string("absent") : meet(port, rank, 4, rank == 0 ? 10000 : 400);
  });
  for (const size_t rank : {0u, 1u, 3u})
    EXPECT_THAT(outcomes[rank],
                AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("rank 2 of 4 did not come to 127.0.0.1")));
}

TEST(Tcp, SaysThatThePortIsTaken) {
  int port = 0;
  const Descriptor holder = listen_at(&port);
  EXPECT_THAT(meet(port, 0, 2, 5000),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr(fmt::format("cannot listen at 127.0.0.1:{}", port)),
                    HasSubstr("a port that no other process uses")));
  EXPECT_THAT(meet_tcp("203.0.113.7", port, kSecret, 0, 2, milliseconds(1000)).status().to_string(),
              HasSubstr("expected an address of the machine that rank 0 runs on"));
}

TEST(Tcp, SaysThatSomebodyElseIsAtTheAddress) {
  int port = 0;
  const Descriptor listener = listen_at(&port);
  RankProcesses rank(1, [&](int) { return meet(port, 1, 2, 5000); });
  std::vector<Descriptor> accepted;
  do {
    accepted.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string banner = "220 mail.example.org ESMTP, at your service, please go ahead now\r\n";
    send(accepted.back().get(), banner.data(), banner.size(), MSG_NOSIGNAL);
  } while (wait_for(listener.get(), POLLIN, in_ms(300)));
  EXPECT_THAT(rank.outcomes(kTcpPatience)[0],
              AllOf(HasSubstr("MISMATCH"), HasSubstr("it is not rank 0 of a moeway job")));
}

TEST(Tcp, GivesUpWhereNobodyListens) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(meet(free_port(), 1, 2, 300),
              AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("could not reach rank 0"), HasSubstr("refused")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));
}

TEST(Tcp, RefusesWrongArguments) {
  EXPECT_THAT(meet(0, 0, 2, 100), HasSubstr("port is 0, expected 1 to 65535"));
  EXPECT_THAT(meet(65536, 0, 2, 100), HasSubstr("port is 65536, expected 1 to 65535"));
  EXPECT_THAT(meet(80, 0, 2, 100, ""), HasSubstr("secret is empty"));
  EXPECT_THAT(meet(80, 2, 2, 100), HasSubstr("rank is 2, expected 0 to 1"));
  EXPECT_THAT(meet(80, 0, 2, 0), HasSubstr("timeout is 0 ms"));
  EXPECT_THAT(meet_tcp("", 80, kSecret, 0, 2, kTcpPatience).status().message(), HasSubstr("address is empty"));
}

TEST(Tcp, NoticesAtOnceARankThatIsKilled) {
  for (const int victim : {0, 1}) {
    const int port = free_port();
    const auto outcomes = run_processes(4, [&](int rank) -> std::string {
      const auto collective = meet_tcp(kHost, port, kSecret, rank, 4, kTcpPatience);
      if (rank == victim) raise(SIGKILL);
      const auto begin = std::chrono::steady_clock::now();
      const std::string outcome = gather_outcome(*collective.value(), 100000, 15000);
      return std::chrono::steady_clock::now() - begin < milliseconds(5000) ? outcome : "took long: " + outcome;
    });
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(
          outcomes[static_cast<size_t>(rank)],
          AllOf(HasSubstr("PEER_LOST"), HasSubstr(fmt::format("rank {}", victim)), Not(HasSubstr("took long"))));
    }
  }
}

TEST(Tcp, FailsTheMeetingAtOnceWhenOneWhoWaitsIsKilled) {
  const int port = free_port();
  RankProcesses ranks(3, [&](int rank) { return rank == 2 ? std::string("absent") : meet(port, rank, 3, 15000); });
  std::this_thread::sleep_for(milliseconds(500));
  ranks.send(1, SIGKILL);
  EXPECT_THAT(ranks.outcomes(milliseconds(5000))[0],
              AllOf(HasSubstr("PEER_LOST"), HasSubstr("rank 1 has gone"), HasSubstr("all waited for rank 2")));
}

TEST(Tcp, SurvivesKillsAtAnyMoment) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int job = 0; job < 20; ++job) {
    const int port = free_port();
    const int victim = static_cast<int>(random() % 3);
    const auto moment = std::chrono::microseconds(random() % 4000);
    RankProcesses ranks(3, [&](int rank) -> std::string {
      const auto collective = meet_tcp(kHost, port, kSecret, rank, 3, milliseconds(250));
      return collective.ok() ? gather_outcome(*collective.value(), 8, 250) : collective.status().to_string();
    });
    std::this_thread::sleep_for(moment);
    ranks.send(victim, SIGKILL);
    EXPECT_THAT(ranks.outcomes(milliseconds(6000)),
                Each(AnyOf("OK", "killed by signal 9", HasSubstr("PEER_LOST"), HasSubstr("DEADLINE_EXCEEDED"))));
  }
}

}  // namespace
}  // namespace moeway::bootstrap
