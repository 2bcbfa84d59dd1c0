// Compares what a rank got in a round with what the routing says, value by value and bit by bit. It works the answer
// out for itself, from the routes of all ranks and the pattern of the data.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cli/buffers.h"
#include "cli/findings.h"
#include "cli/pattern.h"
#include "cli/routes.h"

namespace moeway::cli {

// What a rank's routing amounts to, for the report and for the library's own counters.
struct Moved {
  int64_t tokens = 0;           // That the rank sends: those given to dispatch, or with replicas its share of them.
  int64_t routes = 0;           // Of these tokens.
  int64_t tokens_sent = 0;      // (token, destination rank) pairs.
  int64_t tokens_received = 0;  // Tokens that came with at least one route for this rank.
  int64_t rows_received = 0;    // Of this rank's experts, as far as there is room.
  int64_t rows_dropped = 0;     // The others.
};

class Check {
 public:
  // `alive` is called now and then while a check runs.
  Check(const Routes& routes, const Pattern& pattern, Buffers& buffers, int rank, int num_ranks,
        std::function<void()> alive);

  // Of one round, after its combine. `thorough`: also look at every row that should hold nothing; otherwise only at
  // the row behind each expert's last.
  void round(int64_t round, bool thorough);

  const Findings& findings() const { return findings_; }
  Findings& findings() { return findings_; }
  const Moved& moved() const { return moved_; }
  int64_t rows_checked() const { return rows_checked_; }
  int64_t sums_checked() const { return sums_checked_; }
  // Rows that each of the rank's experts has got so far.
  const std::vector<int64_t>& expert_rows() const { return expert_rows_; }

 private:
  struct Source {
    int rank;
    int64_t token;
    int32_t k;
  };
  bool sends(const Batch& batch, int64_t token) const;
  void count(const Batch& batch);
  void count_room();
  void check_counts();
  void check_expert_rows();
  void check_token_rows();
  void check_row(int64_t row, int64_t expert, const Source& source);
  void check_local_routes(int64_t row, const Source& source, const Batch* batch);
  void check_untouched(bool thorough);
  void check_sums();
  void check_guards();
  // Compares elements; reports the first that differs.
  void compare(const char* what, DType dtype, const std::byte* expected, const std::byte* got, int64_t bytes,
               Mismatch where);
  int64_t local_of(int32_t expert) const;

  const Routes& routes_;
  const Pattern& pattern_;
  Buffers& buffers_;
  int rank_, num_ranks_;
  std::function<void()> alive_;
  SumOracle oracle_;
  std::vector<int32_t> owners_;
  Findings findings_;
  Moved moved_;
  int64_t rows_checked_ = 0, sums_checked_ = 0, round_ = 0;
  std::vector<int64_t> expert_rows_;
  std::vector<int64_t> counts_, first_rows_;  // Of this round, per local expert.
  // Of this round, per expert: rows that there is room for, and how many come from lower ranks.
  std::vector<int64_t> room_, rows_before_;
  std::vector<std::byte> row_, scales_, sum_;
  std::vector<float> values_;
};

}  // namespace moeway::cli
