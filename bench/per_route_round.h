// MPI_Alltoallv with a row for each route; the owner of a token weighs and adds the rows that come back.
#pragma once

#include "mpi_round.h"

namespace bench {

class PerRouteRound final : public MpiRound {
 public:
  PerRouteRound(const Shape& shape, int rank) : MpiRound(shape, rank), counts_(shape.num_ranks) {
    const auto table = static_cast<size_t>(shape.num_ranks) * static_cast<size_t>(owners_.max_count());
    send_per_expert_.resize(table);
    recv_per_expert_.resize(table);
    next_row_.resize(table);
    row_of_route_.resize(num_routes());
    sent_ = make_rows(static_cast<int64_t>(num_routes()));
    const int64_t per_token = std::min(shape.topk, owners_.count(rank));
    received_ = make_rows(int64_t{shape.num_ranks} * shape.num_tokens * per_token);
    rows_ = received_;
  }

  const char* name() const override { return "MPI_Alltoallv, a row per route"; }

  void dispatch(const Inputs& inputs) override {
    count_routes(inputs);
    const int width = owners_.max_count();
    MPI_Alltoall(send_per_expert_.data(), width, MPI_INT32_T, recv_per_expert_.data(), width, MPI_INT32_T,
                 MPI_COMM_WORLD);
    for (size_t r = 0; r < counts_.send.size(); ++r) {
      counts_.send[r] = row_sum(send_per_expert_, r);
      counts_.recv[r] = row_sum(recv_per_expert_, r);
    }
    counts_.place_one_after_another();
    int64_t next = 0;
    for (size_t cell = 0; cell < next_row_.size(); ++cell) {
      next_row_[cell] = next;
      next += send_per_expert_[cell];
    }
    for (size_t route = 0; route < num_routes(); ++route) {
      const int64_t place = next_row_[cell_of(inputs.experts[route])]++;
      row_of_route_[route] = place;
      copy_rows(row(sent_, place), row(inputs.x, static_cast<int64_t>(route) / shape_.topk), 1);
    }
    send_rows(counts_, sent_, &received_);
    reorder(Direction::kToExperts);
  }

  void apply_experts() override {
    int64_t first = 0;
    for (int e = 0; e < owners_.count(rank_); ++e) {
      int64_t num_rows = 0;
      for (int src = 0; src < shape_.num_ranks; ++src) num_rows += recv_per_expert_[cell(src, e)];
      apply_expert(row(rows_, first), num_rows * shape_.hidden, owners_.first(rank_) + e);
      first += num_rows;
    }
  }

  void combine(const Inputs& inputs, std::vector<Bf16>& y) override {
    reorder(Direction::kToSources);
    return_rows(counts_, received_, &sent_);
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
  enum class Direction { kToExperts, kToSources };

  size_t cell(int rank, int local_expert) const {
    return static_cast<size_t>(rank) * static_cast<size_t>(owners_.max_count()) + static_cast<size_t>(local_expert);
  }
  size_t cell_of(int32_t expert) const {
    const int owner = owners_.owner(expert);
    return cell(owner, expert - owners_.first(owner));
  }
  int row_sum(const std::vector<int32_t>& table, size_t rank) const {
    int sum = 0;
    for (int e = 0; e < owners_.max_count(); ++e) sum += table[cell(static_cast<int>(rank), e)];
    return sum;
  }
  void count_routes(const Inputs& inputs) {
    std::fill(send_per_expert_.begin(), send_per_expert_.end(), 0);
    for (const int32_t expert : inputs.experts) ++send_per_expert_[cell_of(expert)];
  }
  // From rows as they came (by source, then expert) to rows by expert, or back, in blocks of one source and expert.
  void reorder(Direction direction) {
    int64_t by_expert = 0;
    for (int e = 0; e < owners_.count(rank_); ++e) {
      for (int src = 0; src < shape_.num_ranks; ++src) {
        int64_t by_source = counts_.recv_first[static_cast<size_t>(src)];
        for (int before = 0; before < e; ++before) by_source += recv_per_expert_[cell(src, before)];
        const int64_t num_rows = recv_per_expert_[cell(src, e)];
        if (direction == Direction::kToExperts) {
          copy_rows(row(rows_, by_expert), row(received_, by_source), num_rows);
        } else {
          copy_rows(row(received_, by_source), row(rows_, by_expert), num_rows);
        }
        by_expert += num_rows;
      }
    }
  }

  RowCounts counts_;
  std::vector<int32_t> send_per_expert_, recv_per_expert_;  // [W, most experts of a rank]
  std::vector<int64_t> next_row_;                           // The same: where its next row goes in sent_.
  std::vector<int64_t> row_of_route_;                       // [T * K]: its row in sent_.
  std::vector<Bf16> sent_, received_, rows_;
};

}  // namespace bench
