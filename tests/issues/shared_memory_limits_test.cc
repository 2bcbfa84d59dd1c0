// Memory that cannot be had, and leftovers of killed jobs. Segments have no names and are reserved at creation: a small
// or full /dev/shm does not matter, what does not fit is an error of all ranks with needed and free bytes, and no later
// access can fail (SIGBUS).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "multi_rank/board.h"
#include "multi_rank/check.h"
#include "multi_rank/small_round.h"

namespace moeway::multi_rank {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kTimeoutMs = 20000;
constexpr int64_t kSoonMs = kSanitizer ? 15000 : 5000;

// A mount namespace of this process's own, with a user namespace where that takes no rights.
bool isolate() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << user << " " << user << " 1";
    std::ofstream("/proc/self/gid_map") << group << " " << group << " 1";
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool mount_small(const std::string& target, const char* options) {
  return mount("tmpfs", target.c_str(), "tmpfs", 0, options) == 0;
}

bool may_isolate() {
  const pid_t child = fork();
  if (child == 0) _exit(isolate() && mount_small("/dev/shm", "size=64k") ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#define NEEDS_NAMESPACES()                                                              \
  if (!may_isolate())                                                                   \
  GTEST_SKIP() << "needs the right to make mount namespaces (root, or user namespaces " \
                  "without rights): nothing about small file systems was tested"

void write_file(const std::string& path, size_t bytes, unsigned mode) {
  std::ofstream(path) << std::string(bytes, 'x');
  chmod(path.c_str(), mode);
}

Result<Communicator> meet(const std::string& directory, int rank) {
  Result<Bootstrap> bootstrap = Bootstrap::local(directory, rank, kRanks, std::chrono::milliseconds(kTimeoutMs));
  if (!bootstrap.ok()) return bootstrap.status();
  CommunicatorOptions options;
  options.timeout_ms = kTimeoutMs;
  return Communicator::create(std::move(bootstrap).value(), options);
}

void expect_rounds(Rank& rank, Communicator& communicator) {
  SmallRound small(kRanks, rank.rank());
  if (!rank.expect_ok(small.create(communicator, kTimeoutMs), "create")) return;
  for (int round = 0; round < 3; ++round) rank.expect_ok(small.run(round), "round");
}

void run_processes_alone(const std::function<void(Rank&)>& body) {
  const RanksResult result = run_ranks({kRanks, As::kProcesses, std::chrono::seconds(90), false}, body);
  EXPECT_EQ(result.failures, "");
}

// A config whose segments take some megabytes.
AllToAllConfig large_config(int64_t max_tokens) {
  AllToAllConfig config;
  config.num_experts = 8;
  config.topk = 2;
  config.hidden = 4096;
  config.max_tokens = max_tokens;
  config.timeout_ms = kTimeoutMs;
  return config;
}

TEST(SharedMemoryLimits, ASmallAndFullDevShmDoesNotMatter) {
  NEEDS_NAMESPACES();
  const PrivateDirectory meeting;
  run_processes_alone([&](Rank& rank) {
    if (!rank.expect(isolate() && mount_small("/dev/shm", "size=64k"), "no mount")) return;
    write_file("/dev/shm/full", 64 << 10, 0600);
    Result<Communicator> made = meet(meeting.path(), rank.rank());
    if (!rank.expect_ok(made.status(), "communicator")) return;
    Communicator& communicator = made.value();
    Result<AllToAll> large = AllToAll::create(communicator, large_config(256));  // Far more than 64 KiB.
    rank.expect_ok(large.status(), "create");
    expect_rounds(rank, communicator);
  });
}

// Rank 0 makes a directory there for a moment.
TEST(SharedMemoryLimits, AFullTemporaryDirectoryIsAnErrorOfAllRanks) {
  NEEDS_NAMESPACES();
  const PrivateDirectory meeting, temporary;
  run_processes_alone([&](Rank& rank) {
    unsetenv("XDG_RUNTIME_DIR");
    setenv("TMPDIR", temporary.path().c_str(), 1);
    if (!rank.expect(isolate() && mount_small(temporary.path(), "nr_inodes=1"), "no mount")) return;
    const int64_t start = now_ms();
    rank.expect_error(meet(meeting.path(), rank.rank()).status(), MOEWAY_UNAVAILABLE,
                      {"rank 0", "cannot make directory", temporary.path(), "No space left"}, "communicator");
    rank.expect(now_ms() - start < kSoonMs, "took 5 s or longer");
  });
}

TEST(SharedMemoryLimits, MoreThanTheMachineHasIsAnErrorOfAllRanksWithTheNumbers) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    expect_runs(kRanks, as, [&](Rank& rank) {
      const AllToAllConfig config = large_config(int64_t{1} << 28);
      const Result<AllToAllSizes> sizes = all_to_all_sizes(config, rank.rank(), kRanks);
      if (!rank.expect_ok(sizes.status(), "sizes")) return;
      const int64_t start = now_ms();
      rank.expect_error(AllToAll::create(rank.communicator(), config).status(), MOEWAY_OUT_OF_MEMORY,
                        {"3 ranks need", "bytes together", "bytes free"}, "create");
      rank.expect(now_ms() - start < kSoonMs, "took 5 s or longer");
      expect_rounds(rank, rank.communicator());
    });
  }
}

// One rank alone meets a limit: all hear of it, no signal comes, and less can still be had.
TEST(SharedMemoryLimits, OneRanksLimitIsAnErrorOfAllRanks) {
  expect_runs(kRanks, As::kProcesses, [&](Rank& rank) {
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit low{1 << 20, before.rlim_max};
    if (rank.rank() == 1) setrlimit(RLIMIT_FSIZE, &low);
    const int64_t start = now_ms();
    rank.expect_error(AllToAll::create(rank.communicator(), large_config(256)).status(), MOEWAY_OUT_OF_MEMORY,
                      {"rank 1", "is needed", "ulimit -f", "1048576"}, "create with a limit of file sizes");
    rank.expect(now_ms() - start < kSoonMs, "took 5 s or longer");
    expect_rounds(rank, rank.communicator());  // Fits below the limit.
    if (rank.rank() == 1) setrlimit(RLIMIT_FSIZE, &before);
    if (!kSanitizer) {
      std::ifstream statm("/proc/self/statm");
      rlim_t pages = 0;
      statm >> pages;
      getrlimit(RLIMIT_AS, &before);
      const rlimit few{pages * 4096 + (rlim_t{24} << 20), before.rlim_max};
      if (rank.rank() == 1) setrlimit(RLIMIT_AS, &few);
      rank.expect_error(AllToAll::create(rank.communicator(), large_config(512)).status(), MOEWAY_OUT_OF_MEMORY,
                        {"rank 1"}, "create with a limit of addresses");
      if (rank.rank() == 1) setrlimit(RLIMIT_AS, &before);
    }
    expect_rounds(rank, rank.communicator());
  });
}

// Of other sizes, modes and kinds than the library's own, under each name that it uses.
TEST(SharedMemoryLimits, LeftoversUnderItsNamesAreNoObstacle) {
  const PrivateDirectory meeting, temporary;
  write_file(meeting.path() + "/moeway.socket", 12345, 0000);
  write_file(temporary.path() + "/moeway", 3, 0400);
  write_file(temporary.path() + "/moeway-00000000000000000000000000000000", 0, 0777);
  std::filesystem::create_directory(temporary.path() + "/moeway-ffffffffffffffffffffffffffffffff");
  write_file(temporary.path() + "/moeway-ffffffffffffffffffffffffffffffff/socket", 7, 0000);
  run_processes_alone([&](Rank& rank) {
    unsetenv("XDG_RUNTIME_DIR");
    setenv("TMPDIR", temporary.path().c_str(), 1);
    Result<Communicator> communicator = meet(meeting.path(), rank.rank());
    if (rank.expect_ok(communicator.status(), "communicator")) expect_rounds(rank, communicator.value());
  });
  EXPECT_THAT(meeting.entries(), testing::IsEmpty());
  EXPECT_EQ(temporary.entries().size(), 3u) << "its own, and nothing that is not its own, is removed";
}

}  // namespace
}  // namespace moeway::multi_rank
