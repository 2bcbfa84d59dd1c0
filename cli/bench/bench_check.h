// Compares what a rank of a benchmark got with what the routing says, bit by bit, without code of the library.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "cli/bench/inputs.h"
#include "cli/bench/series.h"
#include "cli/bench/tensors.h"
#include "cli/device/place.h"

namespace moeway::cli {

class BenchCheck {
 public:
  struct About {  // All of it outlives the check.
    const Series& series;
    const AllToAllConfig& config;
    const AllToAllSizes& sizes;
    const Routes& routes;
    const Pattern& pattern;
    const ExpertRows& expert_rows;
    int rank;
  };
  // `alive` is called now and then, from any thread.
  BenchCheck(const About& about, BenchTensors& tensors, Place& place, std::function<void()> alive);

  // Makes all outputs NaNs and -1s, as far as `set` will write them, so that nothing left from before passes for a result.
  Status poison(int set);
  struct Wanted {
    bool sums = true;    // What combine has written too, not only what dispatch has.
    bool behind = true;  // Nothing behind an expert's last row: only after a round of `set` alone.
  };
  // Nothing may be under way.
  Status check(int set, const Wanted& wanted);

  int64_t rows_checked() const { return rows_checked_; }
  int64_t sums_checked() const { return sums_checked_; }
  int64_t wrong() const { return wrong_; }
  const std::vector<std::string>& findings() const { return findings_; }

 private:
  struct Fetched;
  void add(std::string text);
  // The runs of this rank, and the number of rows of each one to copy: one more than it has where there is room.
  std::vector<RowRange> own_runs(const Placement& placement) const;
  Status fetch(const std::vector<RowRange>& runs, Fetched& fetched);
  void check_counts(const Placement& placement, const Fetched& fetched);
  void check_tokens(int set, int source, const Placement& placement, const Fetched& fetched);
  void check_token(int set, int source, int64_t token, const Placement& placement, const Fetched& fetched,
                   std::vector<std::byte>& expected);
  void check_local_routes(int set, int source, int64_t token, int64_t row, const Fetched& fetched);
  void check_behind(const std::vector<RowRange>& runs, const Fetched& fetched);
  void check_sums(int set, const Placement& placement, const Fetched& fetched);
  int64_t local_of(int32_t expert) const;
  // `body(begin, end)` for parts of 0 to n, on as many threads as this rank's share of the processors.
  void in_parallel(int64_t n, const std::function<void(int64_t begin, int64_t end)>& body) const;

  About about_;
  BenchTensors& tensors_;
  Place& place_;
  std::function<void()> alive_;
  bool token_major_;
  std::vector<int32_t> owners_;
  std::mutex mutex_;  // Of what follows.
  std::vector<std::string> findings_;
  int64_t wrong_ = 0, rows_checked_ = 0, sums_checked_ = 0;
};

}  // namespace moeway::cli
