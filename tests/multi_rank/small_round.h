// A small job for tests of what happens around rounds: one rank's tensors, and calls that give their Status instead of
// noting it, since here a failure may be what is expected. The sums are checked exactly; everything else about rounds
// is job.h's business.
#pragma once

#include <moeway/moeway.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moeway::multi_rank {

class SmallRound {
 public:
  static constexpr int kTopk = 3;
  static constexpr int kHidden = 24;
  static constexpr int kTokens = 5;

  SmallRound(int num_ranks, int rank) : num_experts_(2 * num_ranks + 1), rank_(rank) {}

  AllToAllConfig config(int64_t timeout_ms) const {
    AllToAllConfig config;
    config.num_experts = num_experts_;
    config.topk = kTopk;
    config.hidden = kHidden;
    config.max_tokens = kTokens;
    config.dispatch_dtype = config.row_dtype = config.output_dtype = kF32;
    config.timeout_ms = timeout_ms;
    return config;
  }

  Status create(Communicator& communicator, int64_t timeout_ms) {
    const AllToAllConfig wanted = config(timeout_ms);
    Result<AllToAllSizes> sizes = all_to_all_sizes(wanted, communicator.rank(), communicator.size());
    if (!sizes.ok()) return sizes.status();
    sizes_ = sizes.value();
    Result<AllToAll> made = AllToAll::create(communicator, wanted);
    if (!made.ok()) return made.status();
    all_to_all_ = std::make_unique<AllToAll>(std::move(made).value());
    x_.resize(kTokens * kHidden);
    y_.resize(x_.size());
    ids_.resize(kTokens * kTopk);
    weights_.resize(ids_.size());
    rows_.resize(static_cast<size_t>(sizes_.max_rows * kHidden));
    num_rows_.resize(static_cast<size_t>(sizes_.num_local_experts));
    return {};
  }

  // The calls, in the order of a round.
  Status dispatch_send(int round) {
    Result<Routing> made = all_to_all_->dispatch_send(input(round));
    if (made.ok()) routing_ = made.value();
    return made.status();
  }
  Status dispatch_recv() { return all_to_all_->dispatch_recv(routing_, output()); }
  Status dispatch(int round) {
    Result<Routing> made = all_to_all_->dispatch(input(round), output());
    if (made.ok()) routing_ = made.value();
    return made.status();
  }
  Status combine_send() { return all_to_all_->combine_send(routing_, expert_rows()); }
  Status combine_recv() { return all_to_all_->combine_recv(routing_, sums()); }
  Status combine() { return all_to_all_->combine(routing_, expert_rows(), sums()); }
  // A whole round, with its sums checked: a wrong one is an INTERNAL error.
  Status run(int round) {
    if (Status s = dispatch(round); !s.ok()) return s;
    if (Status s = combine(); !s.ok()) return s;
    return check(round);
  }

  // After combine.
  Status check(int round) const {
    for (int t = 0; t < kTokens; ++t) {
      float factor = 0;
      for (int k = 0; k < kTopk; ++k) factor += weight(k) * gain(expert(round, t, k));
      for (int h = 0; h < kHidden; ++h) {
        const float expected = factor * element(round, t, h), got = y_[static_cast<size_t>(t * kHidden + h)];
        if (got == expected) continue;
        return Status(MOEWAY_INTERNAL, "round " + std::to_string(round) + ": y[" + std::to_string(t) + ", " +
                                           std::to_string(h) + "] is " + std::to_string(got) + ", expected " +
                                           std::to_string(expected));
      }
    }
    return {};
  }

  AllToAll& all_to_all() { return *all_to_all_; }
  bool created() const { return all_to_all_ != nullptr; }
  // Without close().
  void let_go() { all_to_all_.reset(); }

 private:
  float element(int round, int t, int h) const {
    return static_cast<float>((7 * round + 5 * rank_ + 3 * t + h) % 61 - 30);
  }
  int expert(int round, int t, int k) const { return (round + 2 * rank_ + t + k * (1 + t % 2)) % num_experts_; }
  static float weight(int k) { return 1.0f / static_cast<float>(1 << k); }
  static float gain(int64_t expert) { return static_cast<float>(1 << (expert % 4)); }

  // Every field is set here, where clang's analyzer sees it: it loses sight of a base's initializer.
  static Tensor dense(void* data, DType dtype, const std::array<int64_t, 3>& shape, int ndim = 3) {
    Tensor tensor;
    tensor.data = data;
    tensor.dtype = dtype;
    tensor.ndim = ndim;
    std::copy(shape.begin(), shape.end(), tensor.shape);
    tensor.strides[0] = shape[1] * shape[2];
    tensor.strides[1] = shape[2];
    tensor.strides[2] = 1;
    return tensor;
  }

  DispatchInput input(int round) {
    for (int t = 0; t < kTokens; ++t) {
      for (int h = 0; h < kHidden; ++h) x_[static_cast<size_t>(t * kHidden + h)] = element(round, t, h);
      for (int k = 0; k < kTopk; ++k) {
        ids_[static_cast<size_t>(t * kTopk + k)] = expert(round, t, k);
        weights_[static_cast<size_t>(t * kTopk + k)] = weight(k);
      }
    }
    DispatchInput input;
    input.x = dense(x_.data(), kF32, {kTokens, kHidden, 1}, 2);
    input.topk_idx = dense(ids_.data(), kI32, {kTokens, kTopk, 1}, 2);
    input.topk_weights = dense(weights_.data(), kF32, {kTokens, kTopk, 1}, 2);
    return input;
  }
  Tensor all_rows() { return dense(rows_.data(), kF32, {sizes_.num_local_experts, sizes_.expert_capacity, kHidden}); }
  DispatchOutput output() {
    std::fill(rows_.begin(), rows_.end(), -1e30f);
    DispatchOutput output;
    output.x = all_rows();
    output.num_rows = dense(num_rows_.data(), kI32, {sizes_.num_local_experts, 1, 1}, 1);
    return output;
  }
  // Each expert multiplies by a number of its own.
  Tensor expert_rows() {
    for (int64_t e = 0; e < sizes_.num_local_experts; ++e) {
      const auto first = rows_.begin() + e * sizes_.expert_capacity * kHidden;
      const int64_t count = int64_t{num_rows_[static_cast<size_t>(e)]} * kHidden;
      for (int64_t i = 0; i < count; ++i) first[i] *= gain(sizes_.first_local_expert + e);
    }
    return all_rows();
  }
  Tensor sums() {
    std::fill(y_.begin(), y_.end(), -1e30f);
    return dense(y_.data(), kF32, {kTokens, kHidden, 1}, 2);
  }

  int num_experts_;
  int rank_;
  AllToAllSizes sizes_{};
  std::unique_ptr<AllToAll> all_to_all_;
  Routing routing_{};
  std::vector<float> x_, y_, rows_, weights_;
  std::vector<int32_t> ids_, num_rows_;
};

}  // namespace moeway::multi_rank
