// Cases and runs as expectations of a test; seeds that are printed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "multi_rank/job.h"
#include "multi_rank/sanitizers.h"

namespace moeway::multi_rank {

// Another one in each run, or MOEWAY_TEST_SEED's. Printed, so that a failure can be repeated.
inline uint64_t printed_seed() {
  const char* text = std::getenv("MOEWAY_TEST_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  std::printf("seed %llu (MOEWAY_TEST_SEED=%llu repeats it)\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(seed));
  return seed;
}

// Whether the case passed.
inline bool expect_passes(const Case& job, As as = As::kThreads) {
  const RanksResult result = run_case(job, as);
  EXPECT_TRUE(result.failures.empty()) << result.failures << "ranks as " << as_name(as) << ": " << describe(job);
  return result.failures.empty();
}

// The same for ranks that do something of their own.
inline bool expect_runs(int num_ranks, As as, const std::function<void(Rank&)>& body,
                        std::chrono::seconds limit = std::chrono::seconds(120)) {
  const RanksResult result = run_ranks({num_ranks, as, limit, true}, body);
  EXPECT_TRUE(result.failures.empty()) << result.failures << num_ranks << " ranks as " << as_name(as);
  return result.failures.empty();
}

}  // namespace moeway::multi_rank
