// A round through moeway.
#pragma once

#include <moeway/moeway.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "round.h"

namespace bench {

// A benchmark cannot go on without its subject.
inline void must(const moeway::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "host_round_mpi: %s\n", status.to_string().c_str());
  std::exit(1);
}
template <class T>
T must(moeway::Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

class MoewayRound final : public Round {
 public:
  MoewayRound(moeway::Communicator& communicator, const Shape& shape, moeway::Weights weights, int num_warps)
      : shape_(shape), weights_(weights) {
    moeway::AllToAllConfig config;
    config.num_experts = shape.num_experts;
    config.topk = shape.topk;
    config.hidden = shape.hidden;
    config.max_tokens = shape.num_tokens;
    config.layout = moeway::kExpertPacked;
    config.weights = weights;
    config.distinct_experts = 1;
    config.num_warps = num_warps;
    all_to_all_.emplace(must(moeway::AllToAll::create(communicator, config)));
    const auto sizes = must(moeway::all_to_all_sizes(config, communicator.rank(), shape.num_ranks));
    first_expert_ = static_cast<int>(sizes.first_local_expert);
    num_local_ = sizes.num_local_experts;
    max_rows_ = sizes.max_rows;
    rows_.resize(static_cast<size_t>(max_rows_ * shape.hidden));
    num_rows_.resize(static_cast<size_t>(num_local_));
    first_row_.resize(static_cast<size_t>(num_local_));
  }

  const char* name() const override {
    return weights_ == moeway::kWeightsAtDispatch ? "moeway" : "moeway, weights at combine";
  }

  void dispatch(const Inputs& inputs) override {
    moeway::DispatchInput input;
    input.x = tensor(inputs.x, moeway::kBf16, shape_.hidden);
    input.topk_idx = tensor(inputs.experts, moeway::kI32, shape_.topk);
    if (weights_ == moeway::kWeightsAtDispatch) {
      input.topk_weights = tensor(inputs.weights, moeway::kF32, shape_.topk);
    }
    moeway::DispatchOutput output;
    output.x = moeway::Tensor(rows_.data(), moeway::kBf16, {max_rows_, shape_.hidden});
    output.num_rows = moeway::Tensor(num_rows_.data(), moeway::kI32, {num_local_});
    output.first_row = moeway::Tensor(first_row_.data(), moeway::kI64, {num_local_});
    routing_ = must(all_to_all_->dispatch(input, output));
  }

  void apply_experts() override {
    for (size_t e = 0; e < num_rows_.size(); ++e) {
      apply_expert(rows_.data() + first_row_[e] * shape_.hidden, int64_t{num_rows_[e]} * shape_.hidden,
                   first_expert_ + static_cast<int>(e));
    }
  }

  void combine(const Inputs& inputs, std::vector<Bf16>& y) override {
    const moeway::Tensor rows(rows_.data(), moeway::kBf16, {max_rows_, shape_.hidden});
    const moeway::Tensor sums = tensor(y, moeway::kBf16, shape_.hidden);
    if (weights_ == moeway::kWeightsAtDispatch) {
      must(all_to_all_->combine(routing_, rows, sums));
    } else {
      must(all_to_all_->combine(routing_, rows, tensor(inputs.weights, moeway::kF32, shape_.topk), sums));
    }
  }

  int64_t row_bytes_sent() const override {
    const moeway::AllToAllStats stats = must(all_to_all_->stats());
    return stats.dispatch_sent_bytes + stats.combine_sent_bytes;
  }

 private:
  // One row per token. The library only reads what is an input.
  template <class T>
  moeway::Tensor tensor(const std::vector<T>& values, moeway::DType dtype, int columns) const {
    return {const_cast<T*>(values.data()), dtype, {shape_.num_tokens, columns}};
  }

  Shape shape_;
  moeway::Weights weights_;
  std::optional<moeway::AllToAll> all_to_all_;
  moeway::Routing routing_{};
  int first_expert_ = 0;
  int64_t num_local_ = 0, max_rows_ = 0;
  std::vector<Bf16> rows_;
  std::vector<int32_t> num_rows_;
  std::vector<int64_t> first_row_;
};

}  // namespace bench
