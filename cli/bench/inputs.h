// The routing of a benchmark, and what follows from it: where every row of every rank has to lie.
#pragma once

#include <moeway/all_to_all.h>

#include <cstdint>
#include <vector>

#include "cli/bench/series.h"
#include "cli/routes.h"

namespace moeway::cli {

// Every token goes to `topk` different experts, each choice equally likely; another routing on every rank and in every
// set. Batch s of a rank is its routing in set s. Weights add up to 1, none of them is 0.
Routes uniform_routes(const Series& series, int64_t tokens);

// Rows of one expert, or with token_major of one source rank, that lie one after another.
struct RowRange {
  int64_t first = 0, count = 0;
};

// Worked out from the routes alone, by the order that c_api.h promises: (source rank, token, k).
struct Placement {
  Placement(const AllToAllConfig& config, int64_t expert_capacity, const Routes& routes, int set, int num_ranks);

  // The row of route t * topk + k of `source`, at the rank that owns its expert.
  int64_t row(int source, int64_t route) const {
    return rows_[static_cast<size_t>(source)][static_cast<size_t>(route)];
  }
  // By expert; with token_major by source rank, the same at every owner.
  const std::vector<RowRange>& runs() const { return runs_; }
  const std::vector<int64_t>& expert_rows() const { return expert_rows_; }

 private:
  std::vector<std::vector<int64_t>> rows_;
  std::vector<RowRange> runs_;
  std::vector<int64_t> expert_rows_;
};

// (token, destination rank) pairs of `rank` in `set`.
int64_t tokens_sent(const Routes& routes, int set, int rank, int num_ranks);

}  // namespace moeway::cli
