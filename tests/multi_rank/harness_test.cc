// The harness itself: what goes wrong in a rank, or with a rank, or in an output, must be seen.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

RanksOptions without_communicator(As as, int64_t limit_s = 30) { return {3, as, std::chrono::seconds(limit_s), false}; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Harness, BringsBackWhatRanksSayAndGive) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    const RanksResult result = run_ranks(without_communicator(as), [](Rank& rank) {
      rank.give("from " + std::to_string(rank.rank()));
      rank.expect(rank.rank() != 1, "an expectation of rank 1");
      if (rank.rank() == 2) rank.expect_error(Status(), MOEWAY_MISMATCH, {"text"}, "a call");
    });
    EXPECT_EQ(result.failures,
              "rank 1: an expectation of rank 1\n"
              "rank 2: a call: expected MISMATCH with 'text' in the message, got OK\n");
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(result.text(rank), "from " + std::to_string(rank));
  }
}

TEST(Harness, BringsBackMoreThanAPipeHolds) {
  const std::string large(3 << 20, 'x');
  const RanksResult result = run_ranks(without_communicator(As::kProcesses), [&](Rank& rank) { rank.give(large); });
  EXPECT_EQ(result.failures, "");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(result.text(rank), large);
}

TEST(Harness, AnExceptionIsAFailure) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    const RanksResult result = run_ranks(without_communicator(as), [](Rank& rank) {
      if (rank.rank() == 1) throw std::runtime_error("thrown");
    });
    EXPECT_EQ(result.failures, "rank 1: exception: thrown\n");
  }
}

TEST(Harness, AProcessThatIsKilledIsAFailure) {
  const RanksResult result = run_ranks(without_communicator(As::kProcesses), [](Rank& rank) {
    if (rank.rank() == 1) kill(getpid(), SIGKILL);
  });
  EXPECT_TRUE(contains(result.failures, "rank 1: ended by signal 9")) << result.failures;
}

TEST(Harness, AProcessThatHangsIsKilledInTimeAndIsAFailure) {
  const auto start = std::chrono::steady_clock::now();
  const RanksResult result = run_ranks(without_communicator(As::kProcesses, 1), [](Rank& rank) {
    if (rank.rank() == 2) std::this_thread::sleep_for(std::chrono::hours(1));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result.failures, "rank 2: hangs: not done in time, killed\n");
}

TEST(Harness, ADescriptorThatIsLeftOpenIsAFailure) {
  int left = -1;
  const RanksResult result = run_ranks(without_communicator(As::kThreads), [&](Rank& rank) {
    if (rank.rank() == 0) left = open("/dev/null", O_RDONLY | O_CLOEXEC);
  });
  close(left);
  EXPECT_TRUE(contains(result.failures, "open descriptors")) << result.failures;
}

// Every byte that may not be written, and every one that must be.
TEST(Harness, AnOutputShowsEveryByteThatIsNotAsItMustBe) {
  reference::Random random(3);
  const uint16_t row[3] = {1, 2, 3};
  for (int attempt = 0; attempt < 50; ++attempt) {
    OutputTensor output(kBf16, {2, 4, 3}, Views::kStrided, random);
    const Tensor tensor = output.tensor();
    EXPECT_EQ(output.difference(), "");
    output.expect_row(6, row);
    EXPECT_NE(output.difference(), "") << "a row that is missing";
    auto* elements = static_cast<uint16_t*>(tensor.data);
    uint16_t* written = elements + 1 * tensor.strides[0] + 2 * tensor.strides[1];
    EXPECT_EQ(static_cast<void*>(output.row(6)), static_cast<void*>(written));
    std::memcpy(written, row, sizeof(row));
    EXPECT_EQ(output.difference(), "");
    // One byte anywhere, from in front of the tensor to behind its last row.
    auto* bytes = static_cast<unsigned char*>(tensor.data);
    const int64_t end = 2 * (tensor.strides[0] + 3 * tensor.strides[1] + 3);
    const int64_t place = random.between(-64, end + 63);
    bytes[place] ^= 1u;
    EXPECT_NE(output.difference(), "") << "byte " << place;
    bytes[place] ^= 1u;
    EXPECT_EQ(output.difference(), "");
  }
}

// Data that is not what was sent must fail, in every layout.
TEST(Harness, AJobWithWrongValuesFails) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job;
    layout.apply(job.shape);
    job.tokens = reference::Tokens::kFull;
    job.rounds = 1;
    const auto batches = make_batches(job);
    auto other = batches;
    other[0][1].x[0] ^= std::byte{0x80};  // One bit of rank 1's first element.
    const RanksResult result = run_ranks({2, As::kThreads, std::chrono::seconds(60), true}, [&](Rank& rank) {
      Job own(rank, job, rank.rank() == 0 ? batches : other);
      if (own.create()) own.dispatch(0);
    });
    EXPECT_TRUE(contains(result.failures, "x: byte")) << result.failures << describe(job);
  }
}

}  // namespace
}  // namespace moeway::multi_rank
