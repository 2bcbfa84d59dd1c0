#include "base/deadline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace moeway {
namespace {

TEST(Deadline, PassesWhenItsTimeIsOver) {
  EXPECT_TRUE(Deadline::after(std::chrono::milliseconds(0)).passed());
  const Deadline soon = Deadline::after(std::chrono::seconds(60));
  EXPECT_FALSE(soon.passed());
  EXPECT_GT(soon.left(), std::chrono::seconds(59));
  EXPECT_LE(soon.left(), std::chrono::seconds(60));
}

// A caller who wants no limit gives the largest number there is.
TEST(Deadline, ATimeoutBeyondTheClockIsNoLimit) {
  for (const int64_t ms : {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max() / 1000000}) {
    EXPECT_FALSE(Deadline::after(std::chrono::milliseconds(ms)).passed()) << ms;
  }
}

}  // namespace
}  // namespace moeway
