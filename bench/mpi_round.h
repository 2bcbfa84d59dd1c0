// What the rounds through MPI's collectives share. They are written as a careful caller would: buffers are taken once,
// rows are moved in blocks where they lie together, and a sum costs one fused multiply-add an element and row.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "round.h"

namespace bench {

// Blocks of a constant number of elements are what compilers vectorise at every level of optimisation (GCC at -O2 leaves
// other loops scalar); moeway's kernels are written so, and what they are compared with must be, too.
template <class F>
void in_blocks(int64_t n, F f) {
  constexpr int64_t kBlock = 64;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (int64_t j = 0; j < kBlock; ++j) f(i + j);
  }
  for (; i < n; ++i) f(i);
}

// sum[i] += weight * row[i], each with one rounding.
inline void add_scaled(float* __restrict sum, const Bf16* __restrict row, float weight, int64_t n) {
  in_blocks(n, [=](int64_t i) { sum[i] = std::fma(weight, to_float(row[i]), sum[i]); });
}

inline void round_sum(Bf16* __restrict out, const float* __restrict sum, int64_t n) {
  in_blocks(n, [=](int64_t i) { out[i] = to_bf16(sum[i]); });
}

// Which rank owns which expert: as in moeway, the first E mod W ranks own one more than the others.
class Owners {
 public:
  explicit Owners(const Shape& shape) {
    first_.push_back(0);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
      const int count = shape.num_experts / shape.num_ranks + (rank < shape.num_experts % shape.num_ranks ? 1 : 0);
      first_.push_back(first_.back() + count);
      max_count_ = std::max(max_count_, count);
      owner_.insert(owner_.end(), static_cast<size_t>(count), rank);
    }
  }
  int owner(int32_t expert) const { return owner_[static_cast<size_t>(expert)]; }
  int first(int rank) const { return first_[static_cast<size_t>(rank)]; }
  int count(int rank) const { return first(rank + 1) - first(rank); }
  int max_count() const { return max_count_; }

 private:
  std::vector<int> owner_, first_;
  int max_count_ = 0;
};

// How many rows go to and come from each rank, and where they begin; one after another unless somebody says otherwise.
struct RowCounts {
  explicit RowCounts(int num_ranks) {
    for (std::vector<int>* v : {&send, &send_first, &recv, &recv_first}) v->assign(static_cast<size_t>(num_ranks), 0);
  }
  void place_one_after_another() {
    for (size_t r = 1; r < send.size(); ++r) {
      send_first[r] = send_first[r - 1] + send[r - 1];
      recv_first[r] = recv_first[r - 1] + recv[r - 1];
    }
  }
  int64_t num_sent() const { return int64_t{send_first.back()} + send.back(); }
  int64_t num_received() const { return int64_t{recv_first.back()} + recv.back(); }

  std::vector<int> send, send_first, recv, recv_first;  // per rank
};

class MpiRound : public Round {
 public:
  MpiRound(const Shape& shape, int rank) : shape_(shape), rank_(rank), owners_(shape) {
    sum_.resize(static_cast<size_t>(shape.hidden));
    MPI_Type_contiguous(static_cast<int>(shape.row_bytes()), MPI_BYTE, &row_type_);
    MPI_Type_commit(&row_type_);
  }
  ~MpiRound() override { MPI_Type_free(&row_type_); }
  MpiRound(const MpiRound&) = delete;
  MpiRound& operator=(const MpiRound&) = delete;
  int64_t row_bytes_sent() const override { return row_bytes_sent_; }

 protected:
  void send_rows(const RowCounts& counts, const std::vector<Bf16>& send, std::vector<Bf16>* recv) {
    MPI_Alltoallv(send.data(), counts.send.data(), counts.send_first.data(), row_type_, recv->data(),
                  counts.recv.data(), counts.recv_first.data(), row_type_, MPI_COMM_WORLD);
    row_bytes_sent_ += counts.num_sent() * shape_.row_bytes();
  }
  // The same rows the other way.
  void return_rows(const RowCounts& counts, const std::vector<Bf16>& send, std::vector<Bf16>* recv) {
    MPI_Alltoallv(send.data(), counts.recv.data(), counts.recv_first.data(), row_type_, recv->data(),
                  counts.send.data(), counts.send_first.data(), row_type_, MPI_COMM_WORLD);
    row_bytes_sent_ += counts.num_received() * shape_.row_bytes();
  }
  // As many rows to every rank.
  void swap_rows(int rows_per_rank, const std::vector<Bf16>& send, std::vector<Bf16>* recv) {
    MPI_Alltoall(send.data(), rows_per_rank, row_type_, recv->data(), rows_per_rank, row_type_, MPI_COMM_WORLD);
    row_bytes_sent_ += int64_t{rows_per_rank} * shape_.num_ranks * shape_.row_bytes();
  }

  std::vector<Bf16> make_rows(int64_t num_rows) const {
    return std::vector<Bf16>(static_cast<size_t>(num_rows * shape_.hidden));
  }
  Bf16* row(std::vector<Bf16>& rows, int64_t i) const { return rows.data() + i * shape_.hidden; }
  const Bf16* row(const std::vector<Bf16>& rows, int64_t i) const { return rows.data() + i * shape_.hidden; }
  void copy_rows(Bf16* dst, const Bf16* src, int64_t num_rows) const {
    std::memcpy(dst, src, static_cast<size_t>(num_rows * shape_.row_bytes()));
  }
  size_t num_routes() const { return static_cast<size_t>(shape_.num_tokens) * static_cast<size_t>(shape_.topk); }

  void start_sum() { std::fill(sum_.begin(), sum_.end(), 0.0f); }
  void add_row(float weight, const Bf16* elements) { add_scaled(sum_.data(), elements, weight, shape_.hidden); }
  void finish_sum(Bf16* out) const { round_sum(out, sum_.data(), shape_.hidden); }

  const Shape shape_;
  const int rank_;
  const Owners owners_;

 private:
  MPI_Datatype row_type_;
  int64_t row_bytes_sent_ = 0;
  std::vector<float> sum_;
};

}  // namespace bench
