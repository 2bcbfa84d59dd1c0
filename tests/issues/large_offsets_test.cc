// Offsets and sizes beyond 2^31 and 2^32, in a caller's tensor and in the heap. The memory is mapped and mostly never
// touched; still a test is left out, by name, where there is too little of it. (Sizes alone: multi_rank/sizes_test.cc.)
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "multi_rank/check.h"
#include "multi_rank/place.h"

namespace moeway::multi_rank {
namespace {

int64_t free_mebibytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("MemAvailable:", 0) == 0) return std::stoll(line.substr(13)) / 1024;
  return 0;
}

// Memory that is taken only where it is touched.
class Sparse {
 public:
  explicit Sparse(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), data_(place::take_sparse(bytes_)) {}
  ~Sparse() {
    if (data_ != nullptr) place::give_sparse(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

#define MOEWAY_SKIP_WITHOUT_MEMORY(mebibytes)                                               \
  if (kSanitizer) GTEST_SKIP() << "not under a sanitizer, which shadows all mapped memory"; \
  if (free_mebibytes() < (mebibytes))                                                       \
  GTEST_SKIP() << "needs " << (mebibytes) << " MiB of free memory, there are " << free_mebibytes()

constexpr int64_t kHidden = 4096;
constexpr int64_t kMaxTokens = 4096;
constexpr int64_t kLocalExperts = 64;
constexpr int64_t kPaddedRows = 3 * 2 * kMaxTokens;  // Three times the worst case: 6.4 G elements, 12.9 GB.
constexpr int kFew = 5;                              // Tokens that also go to expert 0.

uint16_t element(int64_t token, int64_t h) {
  return reference::bf16_from_float(static_cast<float>((token * 7 + h) % 200 - 100));
}

void fill_tokens(Memory<uint16_t>& x) {
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = element(static_cast<int64_t>(i) / kHidden, static_cast<int64_t>(i) % kHidden);
}

// Whether the row at `expert` and `row` of x is the token.
bool holds(const Sparse& x, int64_t expert, int64_t row, int64_t token) {
  const auto* elements = reinterpret_cast<const uint16_t*>(x.data() + (expert * kPaddedRows + row) * kHidden * 2);
  for (int64_t h = 0; h < kHidden; ++h)
    if (elements[h] != element(token, h)) return false;
  return true;
}

void check_rows(Rank& rank, const Sparse& x, const int32_t* num_rows) {
  for (int64_t e = 0; e < kLocalExperts; ++e) {
    const int32_t expected = rank.rank() == 0 && e == 0 ? kFew : rank.rank() == 1 && e == 63 ? kMaxTokens : 0;
    rank.expect(num_rows[e] == expected, "rows of local expert " + std::to_string(e));
  }
  if (rank.rank() == 0) {
    for (int64_t row = 0; row < kFew; ++row) rank.expect(holds(x, 0, row, row), "a row of expert 0");
    return;
  }
  for (int64_t row = 0; row < kMaxTokens; ++row)
    if (!rank.expect(holds(x, 63, row, row), "row " + std::to_string(row) + " of expert 127")) return;
}

// y = 1 * row of expert 127 + 2 * row of expert 0, the experts leaving rows as they are.
void check_sums(Rank& rank, const Memory<uint16_t>& y) {
  for (int64_t t = 0; t < kMaxTokens; ++t) {
    for (int64_t h = 0; h < kHidden; ++h) {
      const float value = reference::float_from_bf16(element(t, h));
      const uint16_t expected = reference::bf16_from_float(t < kFew ? 3 * value : value);
      if (y[static_cast<size_t>(t * kHidden + h)] != expected) {
        rank.fail("y of token " + std::to_string(t) + ", element " + std::to_string(h));
        return;
      }
    }
  }
}

void run_large_output(Rank& rank) {
  AllToAllConfig config;
  config.num_experts = 128;
  config.topk = 2;
  config.hidden = kHidden;
  config.max_tokens = kMaxTokens;
  config.distinct_experts = 1;
  Result<AllToAll> made = AllToAll::create(rank.communicator(), config);
  if (!rank.expect_ok(made.status(), "create")) return;
  SettledAllToAll object(std::move(made).value());
  const Sparse x(kLocalExperts * kPaddedRows * kHidden * 2);
  if (!rank.expect(x.data() != nullptr, "the output cannot be mapped")) return;
  if (!rank.expect_ok(rank.communicator().barrier(), "barrier")) return;
  // Rank 1 sends all it may to the last expert, and a few tokens to the first one.
  const int64_t tokens = rank.rank() == 1 ? kMaxTokens : 0;
  Memory<uint16_t> in_x(static_cast<size_t>(tokens * kHidden)), y(in_x.size(), 0xffff);
  fill_tokens(in_x);
  Memory<int32_t> topk_idx(static_cast<size_t>(tokens * 2), -1);
  Memory<float> topk_weights(topk_idx.size(), 1.0f);
  for (int64_t t = 0; t < tokens; ++t) {
    topk_idx[static_cast<size_t>(2 * t)] = 127;
    if (t < kFew) topk_idx[static_cast<size_t>(2 * t + 1)] = 0;
    topk_weights[static_cast<size_t>(2 * t + 1)] = 2.0f;
  }
  Memory<int32_t> num_rows(kLocalExperts, -1);
  DispatchInput in;
  in.x = place::here(Tensor(in_x.data(), kBf16, {tokens, kHidden}));
  in.topk_idx = place::here(Tensor(topk_idx.data(), kI32, {tokens, 2}));
  in.topk_weights = place::here(Tensor(topk_weights.data(), kF32, {tokens, 2}));
  DispatchOutput out;
  out.x = place::here(Tensor(x.data(), kBf16, {kLocalExperts, kPaddedRows, kHidden}));
  out.num_rows = place::here(Tensor(num_rows.data(), kI32, {kLocalExperts}));
  const Result<Routing> routing = object.dispatch(in, out);
  if (!rank.expect_ok(routing.status(), "dispatch")) return;
  check_rows(rank, x, num_rows.data());
  const Status status =
      object.combine(routing.value(), Tensor(out.x), place::here(Tensor(y.data(), kBf16, {tokens, kHidden})));
  if (rank.expect_ok(status, "combine") && tokens > 0) check_sums(rank, y);
}

TEST(LargeOffsets, TheLastExpertBeyondTwoToThe32Elements) {
  MOEWAY_SKIP_WITHOUT_MEMORY(4096);
  expect_runs(2, As::kThreads, run_large_output);
}

// One rank, a heap of 4.8 GB: tokens at both ends of a region that is larger than 2^32 bytes.
void run_large_heap(Rank& rank) {
  constexpr int64_t kTokens = 36864, kTokenBytes = 65536;
  AllToAllConfig config;
  config.num_experts = 1;
  config.topk = 1;
  config.hidden = 1;
  config.max_tokens = kTokens;
  config.dispatch_dtype = kBytes;
  config.token_bytes = kTokenBytes;
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config, 0, 1);
  rank.expect(sizes.ok() && sizes.value().heap_bytes > int64_t{1} << 32, "a heap beyond 2^32 bytes");
  Result<AllToAll> made = AllToAll::create(rank.communicator(), config);
  if (!rank.expect_ok(made.status(), "create")) return;
  SettledAllToAll object(std::move(made).value());
  const Sparse x(kTokens * kTokenBytes), received(kTokens * kTokenBytes);
  Memory<int64_t> topk_idx(kTokens, -1);
  for (const int64_t token : {int64_t{0}, int64_t{1}, kTokens - 2, kTokens - 1})
    topk_idx[static_cast<size_t>(token)] = 0;
  Memory<float> topk_weights(kTokens, 0.5f);
  Memory<uint16_t> rows(kTokens, 0x7fc0), y(kTokens, 0xffff);
  Memory<int32_t> num_rows(1, -1);
  // Both epochs, so both halves of the heap.
  for (int round = 0; round < 2; ++round) {
    int64_t row = 0;
    for (int64_t token = 0; token < kTokens; ++token) {
      if (topk_idx[static_cast<size_t>(token)] < 0) continue;
      std::memset(x.data() + token * kTokenBytes, static_cast<int>(1 + row + 10 * round), kTokenBytes);
      rows[static_cast<size_t>(row)] = reference::bf16_from_float(static_cast<float>(2 * (row + 1)));
      ++row;
    }
    DispatchInput in;
    in.x = place::here(Tensor(x.data(), kBytes, {kTokens, kTokenBytes}));
    in.topk_idx = place::here(Tensor(topk_idx.data(), kI64, {kTokens, 1}));
    in.topk_weights = place::here(Tensor(topk_weights.data(), kF32, {kTokens, 1}));
    DispatchOutput out;
    out.x = place::here(Tensor(received.data(), kBytes, {1, kTokens, kTokenBytes}));
    out.num_rows = place::here(Tensor(num_rows.data(), kI32, {1}));
    const Result<Routing> routing = object.dispatch(in, out);
    if (!rank.expect_ok(routing.status(), "dispatch")) return;
    rank.expect(num_rows[0] == 4, "num_rows");
    for (int64_t r = 0; r < 4; ++r) {
      const std::vector<std::byte> expected(kTokenBytes, static_cast<std::byte>(1 + r + 10 * round));
      rank.expect(std::memcmp(received.data() + r * kTokenBytes, expected.data(), kTokenBytes) == 0, "a row");
    }
    const Status status = object.combine(routing.value(), place::here(Tensor(rows.data(), kBf16, {1, kTokens, 1})),
                                         place::here(Tensor(y.data(), kBf16, {kTokens, 1})));
    if (!rank.expect_ok(status, "combine")) return;
    rank.expect(reference::float_from_bf16(y[0]) == 1.0f, "y of the first token");
    rank.expect(y[2] == 0, "y of a token without routes");
    rank.expect(reference::float_from_bf16(y[kTokens - 1]) == 4.0f, "y of the last token");
  }
}

TEST(LargeOffsets, TokensAtBothEndsOfAHeapBeyondTwoToThe32Bytes) {
  MOEWAY_SKIP_WITHOUT_MEMORY(8192);
  expect_runs(1, As::kThreads, run_large_heap);
}

}  // namespace
}  // namespace moeway::multi_rank
