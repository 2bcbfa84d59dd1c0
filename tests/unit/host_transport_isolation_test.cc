// The host transport across the walls that operating systems put up, and what is left of a job that is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstddef>
#include <fstream>
#include <random>

#include "unit/heap_checks.h"
#include "unit/rank_processes.h"

namespace moeway::transport {
namespace {

using ::moeway::unit::all_well;
using ::moeway::unit::as_processes;
using ::moeway::unit::Body;
using ::moeway::unit::in_ms;
using ::moeway::unit::RankProcesses;
using ::moeway::unit::run_processes;
using ::moeway::unit::shares_heaps;
using ::moeway::unit::TemporaryDirectory;
using ::moeway::unit::with_transport;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// From now on this process's temporary files go to `path`.
void use_temporary_directory(const std::string& path) {
  unsetenv("XDG_RUNTIME_DIR");
  setenv("TMPDIR", path.c_str(), 1);
}

// From now on `call` fails with `error_number`, as under a container's filter.
bool forbid(unsigned call, unsigned error_number) {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error_number),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Whether this process may make namespaces of its own.
bool may_isolate() {
  return run_processes(1, [](int) -> std::string { return unshare(CLONE_NEWNS) == 0 ? "" : "no"; })[0].empty();
}

// Puts `what` over `target`, for this process alone.
bool mount_alone(const std::string& what, const std::string& target, const char* type, unsigned long flags) {
  return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount(what.c_str(), target.c_str(), type, flags, nullptr) == 0;
}

// Becomes a user without rights, which also closes its /proc to others: what the first way to connect needs.
bool give_up_rights() {
  constexpr uid_t kNobody = 65534;
  return (geteuid() != 0 || setresuid(kNobody, kNobody, kNobody) == 0) && prctl(PR_SET_DUMPABLE, 0) == 0;
}

std::string meet_and_share(const std::string& directory, int rank, int num_ranks) {
  return with_transport(bootstrap::meet_local(directory, rank, num_ranks, milliseconds(10000)), shares_heaps);
}

TEST(HostIsolation, LeavesNothingInTheTemporaryDirectory) {
  const TemporaryDirectory meeting, temporary;
  const auto outcomes = run_processes(3, [&](int rank) {
    use_temporary_directory(temporary.path());
    return with_transport(bootstrap::meet_local(meeting.path(), rank, 3, milliseconds(10000)),
                          [&](Transport&, Collective&) -> std::string {
                            return temporary.entries().empty() ? "" : "left: " + temporary.entries()[0];
                          });
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(HostIsolation, WorksWithoutNoticeOfEndedProcesses) {
  const TemporaryDirectory meeting;
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    if (rank == 1 && !forbid(SYS_pidfd_open, EPERM)) return "no filter";
    return with_transport(bootstrap::meet_local(meeting.path(), rank, 3, milliseconds(10000)),
                          [&](Transport& transport, Collective& collective) -> std::string {
                            const std::string outcome = shares_heaps(transport, collective);
                            if (!outcome.empty()) return outcome;
                            if (rank == 1) raise(SIGKILL);
                            if (rank == 2) return "";
                            // Rank 2's end is noticed, rank 1's cannot be.
                            const Deadline deadline = in_ms(10000);
                            while (!transport.peer_lost(2) && !deadline.passed())
                              std::this_thread::sleep_for(milliseconds(1));
                            return transport.peer_lost(2) && !transport.peer_lost(1) ? "" : "noticed wrongly";
                          });
  });
  EXPECT_EQ(outcomes, (std::vector<std::string>{"", "killed by signal 9", ""}));
}

TEST(HostIsolation, WorksWhereProcessesCannotLookAtEachOther) {
  const TemporaryDirectory meeting, temporary;
  if (geteuid() == 0) {
    ASSERT_EQ(chown(meeting.path().c_str(), 65534, 65534), 0);
    ASSERT_EQ(chown(temporary.path().c_str(), 65534, 65534), 0);
  }
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    use_temporary_directory(temporary.path());
    if (!give_up_rights()) return "cannot give up rights";
    return meet_and_share(meeting.path(), rank, 3);
  });
  EXPECT_EQ(outcomes, all_well(3));
  EXPECT_THAT(temporary.entries(), IsEmpty());
}

TEST(HostIsolation, WorksWithFewDescriptorsUnderWay) {
  // Without rights, a user's descriptors under way are counted against this limit.
  const TemporaryDirectory meeting, temporary;
  if (geteuid() == 0) {
    ASSERT_EQ(chown(meeting.path().c_str(), 65534, 65534), 0);
    ASSERT_EQ(chown(temporary.path().c_str(), 65534, 65534), 0);
  }
  const auto outcomes = run_processes(24, [&](int rank) -> std::string {
    use_temporary_directory(temporary.path());
    if (!give_up_rights()) return "cannot give up rights";
    const rlimit few{110, 110};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return "no limit";
    return meet_and_share(meeting.path(), rank, 24);
  });
  EXPECT_EQ(outcomes, all_well(24));
}

TEST(HostIsolation, WorksAcrossPidNamespaces) {
  if (!may_isolate()) GTEST_SKIP() << "needs the right to make namespaces";
  const TemporaryDirectory meeting, temporary;
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    use_temporary_directory(temporary.path());
    const auto body = [&](Transport& transport, Collective& collective) -> std::string {
      const std::string outcome = shares_heaps(transport, collective);
      if (!outcome.empty() || rank == 1) return outcome;
      // Rank 1 ends now. Its process number means something else here.
      const Deadline deadline = in_ms(10000);
      while (!transport.peer_lost(1) && !deadline.passed()) std::this_thread::sleep_for(milliseconds(1));
      return transport.peer_lost(1) ? "" : "not noticed";
    };
    const auto meet = [&] { return bootstrap::meet_local(meeting.path(), rank, 3, milliseconds(10000)); };
    if (rank != 1) return with_transport(meet(), body);
    if (unshare(CLONE_NEWPID) != 0) return "no namespace";
    return run_processes(1, [&](int) { return with_transport(meet(), body); })[0];
  });
  EXPECT_EQ(outcomes, all_well(3));
  EXPECT_THAT(temporary.entries(), IsEmpty());
}

TEST(HostIsolation, TellsEverybodyOfARankThatCannotReachTheSocket) {
  if (!may_isolate()) GTEST_SKIP() << "needs the right to make namespaces";
  const TemporaryDirectory meeting, temporary;
  ASSERT_EQ(chown(meeting.path().c_str(), 65534, 65534), 0);
  ASSERT_EQ(chown(temporary.path().c_str(), 65534, 65534), 0);
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    use_temporary_directory(temporary.path());
    if (rank == 1 && !mount_alone("tmpfs", temporary.path(), "tmpfs", 0)) return "no mount";
    if (!give_up_rights()) return "cannot give up rights";
    return meet_and_share(meeting.path(), rank, 3);
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("UNAVAILABLE: rank 1: "), HasSubstr("No such file or directory"),
                                   HasSubstr("must share rank 0's temporary directory"))));
  EXPECT_THAT(temporary.entries(), IsEmpty());
}

TEST(HostIsolation, TellsEverybodyOfATemporaryDirectoryThatCannotBeUsed) {
  const TemporaryDirectory meeting;
  const auto outcomes = run_processes(2, [&](int rank) -> std::string {
#ifdef SYS_mkdir
    constexpr unsigned kMakeDirectory = SYS_mkdir;
#else
    constexpr unsigned kMakeDirectory = SYS_mkdirat;
#endif
    if (rank == 0 && !forbid(kMakeDirectory, EROFS)) return "no filter";
    return meet_and_share(meeting.path(), rank, 2);
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("UNAVAILABLE: rank 0: cannot make directory"), HasSubstr("Read-only"))));
}

TEST(HostIsolation, RefusesRanksOfSeveralMachines) {
  if (!may_isolate()) GTEST_SKIP() << "needs the right to make namespaces";
  const TemporaryDirectory meeting, elsewhere;
  const std::string other_boot = elsewhere.path() + "/boot_id";
  std::ofstream(other_boot) << "00000000-1111-2222-3333-444444444444\n";
  const auto outcomes = run_processes(4, [&](int rank) -> std::string {
    if (rank >= 2 && !mount_alone(other_boot, "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND)) return "no mount";
    return meet_and_share(meeting.path(), rank, 4);
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("reaches ranks on one machine only"),
                                   HasSubstr("ranks 0-1 on "), HasSubstr(", ranks 2-3 on "))));
}

// Kills ranks at moments spread over meeting and first allocation. Nobody may hang, and who is still there cleans up.
class HostKills : public ::testing::Test {
 protected:
  // `open_to_each_other`: so that the first way to connect works.
  void run_jobs(int num_jobs, bool kill_all, bool open_to_each_other) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    if (geteuid() == 0 && !open_to_each_other) {
      ASSERT_EQ(chown(meeting_.path().c_str(), 65534, 65534), 0);
      ASSERT_EQ(chown(temporary_.path().c_str(), 65534, 65534), 0);
    }
    for (int job = 0; job < num_jobs; ++job) {
      const auto moment = std::chrono::microseconds(random() % 6000);
      RankProcesses ranks(3, [&](int rank) -> std::string { return one_job(rank, open_to_each_other); });
      std::this_thread::sleep_for(moment);
      for (int rank = 0; kill_all && rank < 3; ++rank) ranks.send(rank, SIGKILL);
      if (!kill_all) ranks.send(static_cast<int>(random() % 3), SIGKILL);
      EXPECT_THAT(ranks.outcomes(milliseconds(8000)),
                  Each(AnyOf("", "killed by signal 9", HasSubstr("PEER_LOST"), HasSubstr("DEADLINE_EXCEEDED"))));
    }
    EXPECT_EQ(run_processes(3, [&](int rank) { return one_job(rank, open_to_each_other); }), all_well(3));
  }

  std::string one_job(int rank, bool open_to_each_other) {
    use_temporary_directory(temporary_.path());
    if (!open_to_each_other && !give_up_rights()) return "cannot give up rights";
    auto collective = bootstrap::meet_local(meeting_.path(), rank, 3, milliseconds(300));
    if (!collective.ok()) return collective.status().to_string();
    const auto transport = make_host_transport(*collective.value(), in_ms(300));
    if (!transport.ok()) return transport.status().to_string();
    const auto heap = transport.value()->allocate(1 << 16, *collective.value(), in_ms(300));
    return heap.ok() ? "" : heap.status().to_string();
  }

  TemporaryDirectory meeting_, temporary_;
};

TEST_F(HostKills, OfOneRankAreSurvivedAndLeaveNothing) {
  run_jobs(20, false, true);
  EXPECT_THAT(temporary_.entries(), IsEmpty());
}

TEST_F(HostKills, OfOneRankAreSurvivedInTheSecondWayToConnect) {
  run_jobs(20, false, false);
  EXPECT_THAT(temporary_.entries(), IsEmpty());
}

TEST_F(HostKills, OfAllRanksDisturbNoLaterJob) {
  run_jobs(20, true, true);
  for (const std::string& left : temporary_.entries()) EXPECT_THAT(left, ::testing::StartsWith("moeway-"));
}

}  // namespace
}  // namespace moeway::transport
