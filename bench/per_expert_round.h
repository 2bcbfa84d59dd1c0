// The dense exchange of the first MoE systems: room for every token of every rank at every expert, and MPI_Alltoall of
// all of it. No counts are needed; experts read where it arrives, [source rank, local expert, T, H].
#pragma once

#include "mpi_round.h"

namespace bench {

class PerExpertRound final : public MpiRound {
 public:
  PerExpertRound(const Shape& shape, int rank) : MpiRound(shape, rank) {
    row_of_route_.resize(num_routes());
    used_.resize(static_cast<size_t>(shape.num_experts));
    sent_ = make_rows(int64_t{shape.num_ranks} * rows_per_rank());
    received_ = sent_;
  }

  const char* name() const override { return "MPI_Alltoall, padded to all tokens per expert"; }

  void dispatch(const Inputs& inputs) override {
    std::fill(used_.begin(), used_.end(), 0);
    for (size_t route = 0; route < num_routes(); ++route) {
      const int32_t expert = inputs.experts[route];
      const int owner = owners_.owner(expert);
      const int64_t first =
          int64_t{owner} * rows_per_rank() + int64_t{expert - owners_.first(owner)} * shape_.num_tokens;
      row_of_route_[route] = first + used_[static_cast<size_t>(expert)]++;
      copy_rows(row(sent_, row_of_route_[route]), row(inputs.x, static_cast<int64_t>(route) / shape_.topk), 1);
    }
    swap_rows(rows_per_rank(), sent_, &received_);
  }

  void apply_experts() override {
    for (int src = 0; src < shape_.num_ranks; ++src) {
      for (int e = 0; e < owners_.count(rank_); ++e) {
        const int64_t first = int64_t{src} * rows_per_rank() + int64_t{e} * shape_.num_tokens;
        apply_expert(row(received_, first), int64_t{shape_.num_tokens} * shape_.hidden, owners_.first(rank_) + e);
      }
    }
  }

  void combine(const Inputs& inputs, std::vector<Bf16>& y) override {
    swap_rows(rows_per_rank(), received_, &sent_);
    for (int64_t token = 0; token < shape_.num_tokens; ++token) {
      start_sum();
      for (int64_t k = 0; k < shape_.topk; ++k) {
        const auto route = static_cast<size_t>(token * shape_.topk + k);
        add_row(inputs.weights[route], row(sent_, row_of_route_[route]));
      }
      finish_sum(row(y, token));
    }
  }

 private:
  int rows_per_rank() const { return owners_.max_count() * shape_.num_tokens; }

  std::vector<int64_t> row_of_route_;  // [T * K]: its row in sent_.
  std::vector<int32_t> used_;          // [E]: rows taken.
  std::vector<Bf16> sent_, received_;
};

}  // namespace bench
