// Hundreds of jobs in the same processes, with shapes, groups of ranks and world sizes that change: memory, descriptors,
// threads and mappings stay as they are.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"
#include "multi_rank/rank_access.h"

namespace moeway::multi_rank {
namespace {

constexpr int kRanks = 4;
constexpr int kPeriod = scaled(60);  // After so many cycles everything comes again.
constexpr int kCycles = 5 * kPeriod;

struct Footprint {
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t mappings = 0;
  int64_t resident_bytes = 0;
};

Footprint footprint() {
  Footprint now;
  malloc_trim(0);
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++now.descriptors;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++now.threads;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  now.resident_bytes = resident * sysconf(_SC_PAGESIZE);
  return now;
}

// At the end of each period.
using Footprints = std::vector<Footprint>;

std::string describe(const Footprints& all) {
  std::string text;
  const auto add = [&](const char* what, int64_t Footprint::*field, int64_t unit) {
    text += (text.empty() ? "" : "; ") + std::string(what);
    for (const Footprint& footprint : all) text += " " + std::to_string(footprint.*field / unit);
  };
  add("descriptors", &Footprint::descriptors, 1);
  add("threads", &Footprint::threads, 1);
  add("mappings", &Footprint::mappings, 1);
  add("resident KiB", &Footprint::resident_bytes, 1024);
  return text;
}

// "" if it is no more than it was.
std::string growth(const Footprint& before, const Footprint& after) {
  std::string grown;
  const auto compare = [&](const char* what, int64_t was, int64_t is, int64_t spare) {
    if (is > was + spare) grown += std::string(what) + ": " + std::to_string(was) + " -> " + std::to_string(is) + "; ";
  };
  compare("descriptors", before.descriptors, after.descriptors, 0);
  compare("threads", before.threads, after.threads, 0);
  // A sanitizer has maps and memory of its own. Elsewhere the allocator's heaps of threads come and go.
  if (!kSanitizer) compare("mappings", before.mappings, after.mappings, 12);
  if (!kSanitizer) compare("resident bytes", before.resident_bytes, after.resident_bytes, int64_t{1} << 20);
  return grown;
}

// Another shape in every cycle of a period.
Case cycle_case(int cycle, int num_ranks) {
  reference::Random random(reference::hash(5, cycle % kPeriod, num_ranks));
  Case job;
  job.shape.num_ranks = num_ranks;
  job.shape.num_experts = static_cast<int>(random.between(1, 3 * num_ranks));
  job.shape.topk = static_cast<int>(random.between(1, std::min(job.shape.num_experts, 4)));
  job.shape.hidden = random.between(1, 400);
  job.shape.max_tokens = random.between(1, 40);
  random.pick(kLayoutForms).apply(job.shape);
  random.pick(kTokenForms).apply(job.shape);
  job.execution = random.chance(30) ? kThreads : kFibers;
  job.num_warps = static_cast<int>(random.between(1, 6));
  job.rounds = 2;
  job.seed = static_cast<uint64_t>(cycle % kPeriod);
  return job;
}

// How the ranks are split into groups: the group of each rank is that of its lowest member.
using Split = std::array<int, kRanks>;
constexpr Split kSplits[] = {{0, 0, 0, 0}, {0, 1, 1, 1}, {0, 0, 2, 2}, {0, 1, 2, 2},
                             {0, 0, 0, 3}, {0, 1, 1, 0}, {0, 1, 2, 3}, {0, 1, 0, 1}};

std::string meeting_of(const PrivateDirectory& directory, int cycle, int group, int communicator) {
  return directory.path() + "/" + std::to_string(cycle) + "-" + std::to_string(group) + "-" +
         std::to_string(communicator);
}

// One job of a group: two communicators, an object on each. Let go in one of several ways.
void run_cycle(Rank& outer, const PrivateDirectory& directory, int cycle) {
  const Split& split = kSplits[cycle % std::size(kSplits)];
  const int group = split[static_cast<size_t>(outer.rank())];
  int place = 0, size = 0;
  for (int r = 0; r < kRanks; ++r) {
    if (split[static_cast<size_t>(r)] != group) continue;
    if (r == outer.rank()) place = size;
    ++size;
  }
  const Case first = cycle_case(cycle, size), second = cycle_case(cycle + 1, size);
  const auto first_batches = make_batches(first), second_batches = make_batches(second);
  const auto meet = [&](int number) {
    return [&, number] { return Bootstrap::local(meeting_of(directory, cycle, group, number), place, size); };
  };
  Rank a(place, size), b(place, size);
  RankAccess::run(a, RanksOptions{}, meet(0), [&](Rank&) {
    RankAccess::run(b, RanksOptions{}, meet(1), [&](Rank&) {
      Job one(a, first, first_batches), two(b, second, second_batches);
      if (!one.create() || !two.create()) return;
      for (int round = 0; round < first.rounds; ++round)
        if (!one.dispatch(round) || !two.dispatch(round) || !two.combine(round) || !one.combine(round)) return;
      if (cycle % 3 > 0) one.close();
      if (cycle % 3 > 1) two.close(), two.close();
    });
  });
  for (const Rank* rank : {&a, &b})
    if (rank->failed()) outer.fail("cycle " + std::to_string(cycle) + ": " + RankAccess::failures(*rank));
}

TEST(Cycles, LeaveProcessesAsTheyWere) {
  const PrivateDirectory directory;
  for (int cycle = 0; cycle < kCycles; ++cycle)
    for (int group = 0; group < kRanks; ++group)
      for (const int communicator : {0, 1}) mkdir(meeting_of(directory, cycle, group, communicator).c_str(), 0700);
  RanksOptions options{kRanks, As::kProcesses, std::chrono::seconds(170), false};
  const RanksResult result = run_ranks(options, [&](Rank& rank) {
    Footprints footprints;
    for (int cycle = 0; cycle < kCycles && !rank.failed(); ++cycle) {
      run_cycle(rank, directory, cycle);
      if (cycle % kPeriod == kPeriod - 1) footprints.push_back(footprint());
    }
    if (rank.failed()) return;
    rank.give(describe(footprints));
    const std::string grown = growth(footprints.front(), footprints.back());
    rank.expect(grown.empty(), "after the first period and after the last: " + grown);
  });
  EXPECT_EQ(result.failures, "");
  for (int r = 0; r < kRanks; ++r) std::printf("rank %d: %s\n", r, result.text(r).c_str());
}

TEST(Cycles, LeaveAProcessOfThreadsAsItWas) {
  Footprints footprints;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    const Case job = cycle_case(cycle, 1 + cycle % 5);
    ASSERT_TRUE(expect_passes(job, As::kThreads));
    if (cycle % kPeriod == kPeriod - 1) footprints.push_back(footprint());
  }
  EXPECT_EQ(growth(footprints.front(), footprints.back()), "");
  std::printf("%s\n", describe(footprints).c_str());
}

}  // namespace
}  // namespace moeway::multi_rank
