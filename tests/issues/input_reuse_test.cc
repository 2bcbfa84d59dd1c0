// Order around a call: what the caller has written before it is seen, inputs may go as soon as it has returned, also
// between its send and its receive, and outputs hold nothing of what was there before. Here the memory of the inputs
// does not change after a call but vanishes: whatever still reads it ends the process.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

// A dense tensor's values in pages of their own, which can be taken away.
class VanishingTensor {
 public:
  explicit VanishingTensor(const Tensor& from) : tensor_(from) {
    if (from.ndim == 0) return;
    size_t bytes = static_cast<size_t>(moeway_dtype_bytes(from.dtype));
    for (int d = 0; d < from.ndim; ++d) bytes *= static_cast<size_t>(from.shape[d]);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (bytes / page + 1) * page;
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) abort();
    if (bytes > 0) std::memcpy(memory_, from.data, bytes);
    tensor_.data = memory_;
  }
  ~VanishingTensor() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  VanishingTensor(const VanishingTensor&) = delete;
  VanishingTensor& operator=(const VanishingTensor&) = delete;

  const Tensor& tensor() const { return tensor_; }
  void vanish() {
    if (memory_ != nullptr) mprotect(memory_, bytes_, PROT_NONE);
  }

 private:
  Tensor tensor_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

struct VanishingInput {
  explicit VanishingInput(const DispatchInput& from)
      : x(Tensor(from.x)),
        scales(Tensor(from.scales)),
        topk_idx(Tensor(from.topk_idx)),
        weights(Tensor(from.topk_weights)) {
    input.x = x.tensor();
    input.scales = scales.tensor();
    input.topk_idx = topk_idx.tensor();
    input.topk_weights = weights.tensor();
  }
  void vanish() {
    for (VanishingTensor* tensor : {&x, &scales, &topk_idx, &weights}) tensor->vanish();
  }
  VanishingTensor x, scales, topk_idx, weights;
  DispatchInput input;
};

void run(As as, Execution execution) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job;
    job.shape.num_ranks = 3;
    job.shape.num_experts = 7;
    job.shape.topk = 3;
    job.shape.hidden = 144;
    job.shape.max_tokens = 9;
    job.shape.dispatch_dtype = reference::DType::kF8E4M3;
    job.shape.scales = reference::Scales::kF32;
    layout.apply(job.shape);
    job.execution = execution;
    job.rounds = scaled(12);
    job.late_rank = 1;  // So that the others' receives come while there is still much to do.
    job.late_us = 2000;
    const auto batches = make_batches(job);
    const bool passed = expect_runs(3, as, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      for (int round = 0; round < job.rounds; ++round) {
        VanishingInput given(own.make_input(round));
        if (!own.dispatch_send_with(round, given.input)) return;
        given.vanish();
        if (!own.dispatch_recv(round)) return;
        // Its rows are overwritten between the two halves.
        if (!own.combine_send(round) || !own.combine_recv(round)) return;
      }
      own.close();
    });
    ASSERT_TRUE(passed) << describe(job);
  }
}

TEST(InputReuse, InputsMayVanishOnceDispatchSendHasReturned) {
  run(As::kThreads, kFibers);
  run(As::kThreads, kThreads);
}
TEST(InputReuse, InputsMayVanishOnceDispatchSendHasReturnedInProcesses) { run(As::kProcesses, kFibers); }

// The teams that read inputs and write outputs are other threads than the one that has just filled both; nothing but
// the call itself orders them. (ThreadSanitizer looks at it too.)
TEST(InputReuse, WhatWasWrittenBeforeTheCallIsSeen) {
  for (const Order order : {Order::kFused, Order::kSplit}) {
    Case job;
    job.shape.num_ranks = 2;
    job.shape.num_experts = 5;
    job.shape.topk = 2;
    job.shape.hidden = 300;
    job.order = order;
    job.execution = kThreads;  // Its teams are other threads than the one that has written.
    job.num_warps = 3;
    job.rounds = scaled(200);
    ASSERT_TRUE(expect_passes(job));
  }
}

}  // namespace
}  // namespace moeway::multi_rank
