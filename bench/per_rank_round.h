// MPI with a row for each (token, destination rank), and the routing of all ranks by MPI_Allgather, from which every
// rank knows what comes and what goes; the expert side reduces. This is what moeway does, through collectives.
#pragma once

#include "mpi_round.h"

namespace bench {

class PerRankRound final : public MpiRound {
 public:
  // Packed: MPI_Alltoallv of the rows that there are. Padded: MPI_Alltoall with room for all tokens to each rank.
  enum class Form { kPacked, kPadded };

  PerRankRound(const Shape& shape, int rank, Form form) : MpiRound(shape, rank), form_(form), counts_(shape.num_ranks) {
    const auto num_ranks = static_cast<size_t>(shape.num_ranks);
    all_experts_.resize(num_ranks * num_routes());
    all_weights_.resize(num_ranks * num_routes());
    first_row_.resize(static_cast<size_t>(owners_.count(rank)) + 1);
    sent_ = make_rows(int64_t{shape.num_ranks} * shape.num_tokens);
    received_ = sent_;
    const int64_t per_token = std::min(shape.topk, owners_.count(rank));
    rows_ = make_rows(int64_t{shape.num_ranks} * shape.num_tokens * per_token);
    slots_.reserve(num_ranks * static_cast<size_t>(shape.num_tokens));
    routes_.reserve(num_ranks * num_routes());
  }

  const char* name() const override {
    return form_ == Form::kPadded ? "MPI_Alltoall, padded to all tokens per rank"
                                  : "MPI_Alltoallv, a row per destination rank";
  }

  void dispatch(const Inputs& inputs) override {
    const auto n = static_cast<int>(num_routes());
    MPI_Allgather(inputs.experts.data(), n, MPI_INT32_T, all_experts_.data(), n, MPI_INT32_T, MPI_COMM_WORLD);
    MPI_Allgather(inputs.weights.data(), n, MPI_FLOAT, all_weights_.data(), n, MPI_FLOAT, MPI_COMM_WORLD);
    pack(inputs);
    find_slots();
    if (form_ == Form::kPadded) {
      swap_rows(shape_.num_tokens, sent_, &received_);
    } else {
      send_rows(counts_, sent_, &received_);
    }
    for (const Slot& slot : slots_) {
      for (size_t j = slot.first_route; j < slot.first_route + slot.num_routes; ++j)
        copy_rows(row(rows_, routes_[j].row), row(received_, slot.place), 1);
    }
  }

  void apply_experts() override {
    for (int e = 0; e < owners_.count(rank_); ++e) {
      const int64_t first = first_row_[static_cast<size_t>(e)], end = first_row_[static_cast<size_t>(e) + 1];
      apply_expert(row(rows_, first), (end - first) * shape_.hidden, owners_.first(rank_) + e);
    }
  }

  void combine(const Inputs&, std::vector<Bf16>& y) override {
    for (const Slot& slot : slots_) {
      start_sum();
      for (size_t j = slot.first_route; j < slot.first_route + slot.num_routes; ++j)
        add_row(routes_[j].weight, row(rows_, routes_[j].row));
      finish_sum(row(received_, slot.place));
    }
    if (form_ == Form::kPadded) {
      swap_rows(shape_.num_tokens, received_, &sent_);
    } else {
      return_rows(counts_, received_, &sent_);
    }
    std::vector<int> next(counts_.send_first);
    for (int64_t token = 0; token < shape_.num_tokens; ++token) {
      start_sum();
      for (int dst = 0; dst < shape_.num_ranks; ++dst) {
        if (goes(rank_, token, dst)) add_row(1.0f, row(sent_, place_of(token, dst, &next)));
      }
      finish_sum(row(y, token));
    }
  }

 private:
  // A token that has come.
  struct Slot {
    int64_t place;  // In received_.
    size_t first_route, num_routes;
  };
  struct Route {
    int32_t local_expert;
    float weight;
    int64_t row;  // In rows_.
  };

  size_t route_of(int rank, int64_t token, int64_t k) const {
    return (static_cast<size_t>(rank) * static_cast<size_t>(shape_.num_tokens) + static_cast<size_t>(token)) *
               static_cast<size_t>(shape_.topk) +
           static_cast<size_t>(k);
  }
  bool goes(int src, int64_t token, int dst) const {
    for (int64_t k = 0; k < shape_.topk; ++k) {
      if (owners_.owner(all_experts_[route_of(src, token, k)]) == dst) return true;
    }
    return false;
  }
  // Where an own token lies in sent_ among those to `dst`; `next` counts them.
  int64_t place_of(int64_t token, int dst, std::vector<int>* next) const {
    if (form_ == Form::kPadded) return int64_t{dst} * shape_.num_tokens + token;
    return (*next)[static_cast<size_t>(dst)]++;
  }

  void pack(const Inputs& inputs) {
    for (int r = 0; r < shape_.num_ranks; ++r) {
      int to_rank = 0, from_rank = 0;
      for (int64_t token = 0; token < shape_.num_tokens; ++token) {
        to_rank += goes(rank_, token, r);
        from_rank += goes(r, token, rank_);
      }
      counts_.send[static_cast<size_t>(r)] = to_rank;
      counts_.recv[static_cast<size_t>(r)] = from_rank;
    }
    counts_.place_one_after_another();
    std::vector<int> next(counts_.send_first);
    for (int64_t token = 0; token < shape_.num_tokens; ++token) {
      for (int dst = 0; dst < shape_.num_ranks; ++dst) {
        if (goes(rank_, token, dst)) copy_rows(row(sent_, place_of(token, dst, &next)), row(inputs.x, token), 1);
      }
    }
  }

  // What comes from where, and in which row of which expert each of its routes ends up.
  void find_slots() {
    slots_.clear();
    routes_.clear();
    std::fill(first_row_.begin(), first_row_.end(), 0);
    for (int src = 0; src < shape_.num_ranks; ++src) {
      int64_t place = counts_.recv_first[static_cast<size_t>(src)];
      for (int64_t token = 0; token < shape_.num_tokens; ++token) {
        Slot slot{form_ == Form::kPadded ? int64_t{src} * shape_.num_tokens + token : place, routes_.size(), 0};
        for (int64_t k = 0; k < shape_.topk; ++k) {
          const size_t route = route_of(src, token, k);
          if (owners_.owner(all_experts_[route]) != rank_) continue;
          const int32_t local = all_experts_[route] - owners_.first(rank_);
          routes_.push_back({local, all_weights_[route], first_row_[static_cast<size_t>(local) + 1]++});
          ++slot.num_routes;
        }
        if (slot.num_routes == 0) continue;
        slots_.push_back(slot);
        ++place;
      }
    }
    for (size_t e = 1; e < first_row_.size(); ++e) first_row_[e] += first_row_[e - 1];
    for (Route& route : routes_) route.row += first_row_[static_cast<size_t>(route.local_expert)];
  }

  Form form_;
  RowCounts counts_;
  std::vector<int32_t> all_experts_;  // [W, T, K]
  std::vector<float> all_weights_;    // [W, T, K]
  std::vector<int64_t> first_row_;    // [L + 1]
  std::vector<Slot> slots_;
  std::vector<Route> routes_;
  std::vector<Bf16> sent_, received_, rows_;
};

}  // namespace bench
