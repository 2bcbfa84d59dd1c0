// What a check has found wrong: all are counted, the first few are kept.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moeway::cli {

struct Mismatch {
  int rank = 0;        // Where it was seen.
  int64_t round = 0;   // From 1.
  int object = 0;      // Of several on a communicator.
  std::string what{};  // "row", "scale", "sum" and so on: docs/command-line.md has the list.
  // -1 where it does not apply.
  int64_t expert = -1;
  int64_t row = -1;  // Row of x; of a sum: the token.
  int64_t element = -1;
  int64_t from_rank = -1, from_token = -1, from_k = -1;  // What the row should be.
  std::string expected{}, got{};
};

class Findings {
 public:
  static constexpr size_t kKept = 8;

  void add(Mismatch mismatch) {
    ++count_;
    if (first_.size() < kKept) first_.push_back(std::move(mismatch));
  }
  // For many of one kind: past kKept there is no use in making the text.
  bool full() const { return first_.size() == kKept; }
  void count_one() { ++count_; }

  int64_t count() const { return count_; }
  const std::vector<Mismatch>& first() const { return first_; }

 private:
  int64_t count_ = 0;
  std::vector<Mismatch> first_;
};

}  // namespace moeway::cli
