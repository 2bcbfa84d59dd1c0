// Symmetric memory of ranks as threads and as processes: what they see of each other, and what happens when something
// is missing. What is left behind, and who may reach whom: host_transport_isolation_test.cc.
#include "transport/host/host_transport.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <barrier>
#include <cstring>
#include <fstream>

#include "bootstrap/bootstrap.h"
#include "transport/host/free_memory.h"
#include "transport/host/whereabouts.h"
#include "unit/heap_checks.h"
#include "unit/loopback.h"
#include "unit/rank_processes.h"

namespace moeway::transport {
namespace {

using ::moeway::unit::all_well;
using ::moeway::unit::as_processes;
using ::moeway::unit::as_threads;
using ::moeway::unit::Body;
using ::moeway::unit::everybody_writes_everywhere;
using ::moeway::unit::free_port;
using ::moeway::unit::in_ms;
using ::moeway::unit::outcome_of;
using ::moeway::unit::RankProcesses;
using ::moeway::unit::run_processes;
using ::moeway::unit::run_threads;
using ::moeway::unit::shares_heaps;
using ::moeway::unit::TemporaryDirectory;
using ::moeway::unit::with_transport;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(HostThreads, ReachEachOthersSegments) {
  for (const int num_ranks : {1, 2, 7}) {
    const auto outcomes = as_threads(num_ranks, [](Transport& transport, Collective& collective) {
      if (transport.name() != std::string("host threads")) return std::string(transport.name());
      if (transport.peer_lost(0)) return std::string("lost");
      return shares_heaps(transport, collective);
    });
    EXPECT_EQ(outcomes, all_well(num_ranks));
  }
}

TEST(HostThreads, MayUseASegmentWhoseOwnerHasLetGo) {
  std::barrier<> gone(3);
  const auto outcomes = as_threads(3, [&](Transport& transport, Collective& collective) -> std::string {
    auto heap = transport.allocate(5000, collective, in_ms(10000));
    if (!heap.ok()) return heap.status().to_string();
    std::unique_ptr<SymmetricHeap> mine = std::move(heap).value();
    if (collective.rank() == 1) mine.reset();
    gone.arrive_and_wait();
    if (mine == nullptr) return "";
    mine->base(1)[4000 + collective.rank()] = std::byte{7};
    return mine->base(1)[4000 + collective.rank()] == std::byte{7} ? "" : "lost a byte";
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(HostProcesses, ReachEachOthersSegments) {
  for (const int num_ranks : {2, 7}) {
    const auto outcomes = as_processes(num_ranks, [](Transport& transport, Collective& collective) {
      if (transport.name() != std::string("host processes")) return std::string(transport.name());
      return shares_heaps(transport, collective);
    });
    EXPECT_EQ(outcomes, all_well(num_ranks));
  }
}

TEST(HostProcesses, ReachEachOtherSixtyFourStrong) {
  const auto outcomes = as_processes(64, [](Transport& transport, Collective& collective) -> std::string {
    const auto heap = transport.allocate(640, collective, in_ms(10000));
    if (!heap.ok()) return heap.status().to_string();
    return everybody_writes_everywhere(*heap.value(), collective, 1);
  });
  EXPECT_EQ(outcomes, all_well(64));
}

TEST(HostProcesses, MayBeOneWithoutAnySocket) { EXPECT_EQ(as_processes(1, shares_heaps), all_well(1)); }

TEST(HostProcesses, MayHoldSeveralRanksAsThreads) {
  // Threads of several processes can only meet over TCP.
  const int port = free_port();
  const auto outcomes = run_processes(2, [&](int process) {
    std::string text;
    for (const std::string& outcome : run_threads(2, [&](int thread) {
           return with_transport(
               bootstrap::meet_tcp("127.0.0.1", port, "secret", process * 2 + thread, 4, milliseconds(10000)),
               shares_heaps);
         }))
      text += outcome;
    return text;
  });
  EXPECT_EQ(outcomes, all_well(2));
}

TEST(HostProcesses, MayUseASegmentWhoseOwnerHasEnded) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(3, [&](int rank) {
    return with_transport(bootstrap::meet_local(directory.path(), rank, 3, milliseconds(10000)),
                          [&](Transport& transport, Collective& collective) -> std::string {
                            const auto heap = transport.allocate(1 << 20, collective, in_ms(10000));
                            if (!heap.ok()) return heap.status().to_string();
                            std::memset(heap.value()->base(rank), rank + 1, 1 << 20);
                            if (const auto all = collective.all_gather_value(0, in_ms(10000)); !all.ok())
                              return all.status().to_string();
                            if (rank == 1) raise(SIGKILL);
                            const Deadline deadline = in_ms(10000);
                            while (!transport.peer_lost(1)) {
                              if (deadline.passed()) return "the end of rank 1 was not noticed";
                              std::this_thread::sleep_for(milliseconds(1));
                            }
                            for (size_t i = 0; i < 1 << 20; ++i) {
                              if (heap.value()->base(1)[i] != std::byte{2}) return "lost a byte";
                              heap.value()->base(1)[i] = std::byte{2};
                            }
                            return transport.peer_lost(rank == 0 ? 2 : 0) && transport.peer_lost(rank) ? "all are lost"
                                                                                                       : "";
                          });
  });
  EXPECT_EQ(outcomes, (std::vector<std::string>{"", "killed by signal 9", ""}));
}

TEST(HostProcesses, AreNotLostWhileTheyStandStill) {
  const TemporaryDirectory directory;
  RankProcesses ranks(2, [&](int rank) {
    return with_transport(bootstrap::meet_local(directory.path(), rank, 2, milliseconds(10000)),
                          [&](Transport& transport, Collective&) -> std::string {
                            if (rank == 1) raise(SIGSTOP);
                            std::this_thread::sleep_for(milliseconds(300));
                            return transport.peer_lost(1 - rank) ? "lost" : "";
                          });
  });
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_EQ(ranks.outcomes(milliseconds(0))[1], "still running");
  ranks.send(1, SIGCONT);
}

TEST(HostTransport, FailsOnAllRanksWhenTheyAskForDifferentSizes) {
  const Body body = [](Transport& transport, Collective& collective) {
    return outcome_of(transport, collective, collective.rank() == 2 ? 4096 : 8192);
  };
  for (const auto& outcomes : {as_threads(3, body), as_processes(3, body)})
    EXPECT_THAT(outcomes, Each("MISMATCH: rank 2 asks for segments of 4096 bytes, rank 0 of 8192"));
}

TEST(HostTransport, RefusesSizesThatCannotBe) {
  for (const size_t bytes : {size_t{0}, size_t{1} << 63, size_t{1} << 62}) {
    const Body body = [&](Transport& transport, Collective& collective) {
      return outcome_of(transport, collective, bytes);
    };
    for (const auto& outcomes : {as_threads(2, body), as_processes(2, body)})
      EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr(fmt::format("of {} bytes", bytes)))));
  }
}

TEST(HostTransport, SumsUpWhatAllRanksNeedBeforeTakingAnything) {
  // Each rank's share alone would fit.
  const auto bytes = static_cast<size_t>(read_free_memory().machine_bytes) / 3;
  const auto refusal =
      AllOf(HasSubstr("OUT_OF_MEMORY: 4 ranks need"), HasSubstr(fmt::format("{}", bytes * 4)), HasSubstr("bytes free"));
  EXPECT_THAT(as_processes(4,
                           [&](Transport& transport, Collective& collective) -> std::string {
                             // Should the check be broken, this limit refuses before the machine is out of memory.
                             const rlimit low{1 << 24, 1 << 24};
                             if (setrlimit(RLIMIT_FSIZE, &low) != 0) return "no limit";
                             const std::string refused = outcome_of(transport, collective, bytes);
                             // The transport stays usable.
                             const std::string smaller = shares_heaps(transport, collective);
                             return smaller.empty() ? refused : smaller;
                           }),
              Each(refusal));
  EXPECT_THAT(as_threads(4,
                         [&](Transport&, Collective& collective) {
                           return check_segments_fit(bytes, collective, in_ms(10000)).to_string();
                         }),
              Each(refusal));
}

// Rank 1 alone meets a limit, in every way that a limit can be met; all ranks must hear of it, and of no signal.
TEST(HostTransport, FailsOnAllRanksWhenOneMeetsALimit) {
  const auto limited = [](int resource, rlim_t most) {
    return as_processes(3, [=](Transport& transport, Collective& collective) -> std::string {
      rlimit before{};
      getrlimit(static_cast<__rlimit_resource>(resource), &before);
      const rlimit low{most, before.rlim_max};
      if (collective.rank() == 1) setrlimit(static_cast<__rlimit_resource>(resource), &low);
      const std::string outcome = outcome_of(transport, collective, size_t{64} << 20);
      if (collective.rank() == 1) setrlimit(static_cast<__rlimit_resource>(resource), &before);
      if (resource == RLIMIT_NOFILE) return outcome;
      const std::string later = shares_heaps(transport, collective);
      return later.empty() ? outcome : later;
    });
  };
  EXPECT_THAT(limited(RLIMIT_FSIZE, 1 << 20),
              Each(AllOf(HasSubstr("OUT_OF_MEMORY: rank 1: a segment of 67108864 bytes is needed"),
                         HasSubstr("the file size limit (ulimit -f) is 1048576 bytes"))));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Room for the own segment and another, not for a third.
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  EXPECT_THAT(limited(RLIMIT_AS, pages * 4096 + (rlim_t{150} << 20)),
              Each(AllOf(HasSubstr("OUT_OF_MEMORY: rank 1: segment of rank 2"), HasSubstr("mmap"))));
#endif
  EXPECT_THAT(limited(RLIMIT_NOFILE, 3), Each(HasSubstr("rank 1: ")));
}

TEST(HostTransport, NamesARankThatDoesNotCome) {
  const Body body = [](Transport& transport, Collective& collective) -> std::string {
    if (collective.rank() == 1) std::this_thread::sleep_for(milliseconds(600));
    return transport.allocate(4096, collective, in_ms(200)).status().to_string();
  };
  for (const auto& outcomes : {as_threads(3, body), as_processes(3, body)})
    EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("rank 1 of 3 did not come"))));
}

TEST(HostTransport, KeepsNoDescriptorsAndHandsNoneOn) {
  const auto descriptors = [] {
    std::vector<int> open;
    for (int fd = 3; fd < 256; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0) open.push_back(fd);
    }
    return open;
  };
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    const std::vector<int> before = descriptors();
    const std::string outcome = with_transport(bootstrap::meet_local(directory.path(), rank, 3, milliseconds(10000)),
                                               [&](Transport& transport, Collective& collective) -> std::string {
                                                 const std::vector<int> made = descriptors();
                                                 const auto heap = transport.allocate(4096, collective, in_ms(10000));
                                                 if (descriptors() != made) return "a heap keeps descriptors";
                                                 for (const int fd : made) {
                                                   const bool old =
                                                       std::find(before.begin(), before.end(), fd) != before.end();
                                                   if (!old && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0)
                                                     return fmt::format("descriptor {} survives exec", fd);
                                                 }
                                                 return "";
                                               });
    if (!outcome.empty()) return outcome;
    return descriptors() == before ? "" : "descriptors were left open";
  });
  EXPECT_EQ(outcomes, all_well(3));
}

// A made-up /proc and /sys.
class FreeMemoryOf : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  FreeMemory read() const { return read_free_memory(root_.path()); }
  void SetUp() override { write("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 10 kB\nMemAvailable:  700 kB\n"); }

  TemporaryDirectory root_;
};

TEST_F(FreeMemoryOf, AMachineWithoutGroupsIsWhatIsAvailable) {
  EXPECT_EQ(read().machine_bytes, 700 * 1024);
  EXPECT_EQ(read().group_bytes, FreeMemory::kUnlimited);
  EXPECT_EQ(read().group, 0u);
}

TEST_F(FreeMemoryOf, AGroupIsItsLimitLessWhatItUsesApartFromCache) {
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.max", "1000000\n");
  write("/sys/fs/cgroup/job/memory.current", "600000\n");
  write("/sys/fs/cgroup/job/memory.stat", "anon 400000\nfile 200000\ninactive_file 100000\nactive_file 50000\n");
  EXPECT_EQ(read().group_bytes, 550000);
  EXPECT_NE(read().group, 0u);
}

TEST_F(FreeMemoryOf, AGroupWithoutALimitIsUnlimited) {
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.max", "max\n");
  write("/sys/fs/cgroup/job/memory.current", "600000\n");
  EXPECT_EQ(read().group_bytes, FreeMemory::kUnlimited);
}

TEST_F(FreeMemoryOf, NestedGroupsIsThatOfTheTightest) {
  write("/proc/self/cgroup", "0::/outer/inner\n");
  write("/sys/fs/cgroup/outer/memory.max", "1000\n");
  write("/sys/fs/cgroup/outer/memory.current", "900\n");
  write("/sys/fs/cgroup/outer/inner/memory.max", "5000\n");
  write("/sys/fs/cgroup/outer/inner/memory.current", "300\n");
  EXPECT_EQ(read().group_bytes, 100);
}

TEST_F(FreeMemoryOf, AContainerIsThatOfItsMountPoint) {
  write("/proc/self/cgroup", "0::/docker/0123456789\n");
  write("/sys/fs/cgroup/memory.max", "4000\n");
  write("/sys/fs/cgroup/memory.current", "1500\n");
  EXPECT_EQ(read().group_bytes, 2500);
}

TEST_F(FreeMemoryOf, AFullGroupIsNothing) {
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.max", "1000\n");
  write("/sys/fs/cgroup/job/memory.current", "1200\n");
  EXPECT_EQ(read().group_bytes, 0);
}

TEST_F(FreeMemoryOf, VersionOneGroupsCountsToo) {
  write("/proc/self/cgroup", "9:cpu,cpuacct:/other\n4:memory:/job\n0::/\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7000\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "3000\n");
  write("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 500\ntotal_active_file 300\n");
  EXPECT_EQ(read().group_bytes, 4800);
}

TEST(Whereabouts, SayWhoIsOnWhichMachine) {
  std::vector<Whereabouts> ranks(4, whereabouts());
  EXPECT_TRUE(all_in_one_process(ranks));
  EXPECT_TRUE(all_on_one_machine(ranks));
  for (size_t r = 0; r < ranks.size(); ++r) {
    const bool second = r == 2;
    ranks[r].host = {};
    std::strcpy(ranks[r].host.data(), second ? "beta" : "alpha");
    if (second) ranks[r].boot[0] = 'x';
  }
  EXPECT_FALSE(all_on_one_machine(ranks));
  EXPECT_EQ(who_is_where(ranks), "ranks 0-1, 3 on alpha, rank 2 on beta");
  ranks[1].process[3] ^= 1;
  EXPECT_FALSE(all_in_one_process(ranks));
}

TEST(Whereabouts, TellAForkFromItsParent) {
  const Whereabouts parent = whereabouts();
  EXPECT_EQ(run_processes(1,
                          [&](int) -> std::string {
                            const Whereabouts child = whereabouts();
                            if (child.process == parent.process) return "the same process";
                            return child.boot == parent.boot ? "" : "another machine";
                          }),
            all_well(1));
}

}  // namespace
}  // namespace moeway::transport
