// Rows on their way to a lane of a GPU: asynchronous copies into shared memory, so that several rows are in flight without
// a register. A lane fetches only what it will read itself, so that nobody else need wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cuda/piece.h"
#include "exec/unit.h"

namespace moeway::exec {

template <class Team, class T>
class CudaQueue {
 public:
  static constexpr int kAhead = 4;

  // Shared memory for each warp of a block.
  static constexpr size_t kWarpBytes = size_t{kAhead} * Team::kPieces * CudaPiece<T>::kUnits * 32 * sizeof(Unit);

  __device__ explicit CudaQueue(const Team& team)
      : team_(team),
        begin_(static_cast<uint32_t>(__cvta_generic_to_shared(team.scratch() + threadIdx.x / 32 * kWarpBytes)) +
               threadIdx.x % 32 * static_cast<uint32_t>(sizeof(Unit))) {}

  __device__ void ask(const T* row, int slice, int num_elements) {
    const uint32_t to = place(asked_);
    team_.pieces(slice, num_elements, [&](int p, int first, int num) {
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        if (num > i * CudaPiece<T>::kUnitElements) {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + offset(p, i)),
                       "l"(reinterpret_cast<const Unit*>(row + first) + i)
                       : "memory");
        }
      }
    });
    skip();
  }
  // In place of an ask() behind the last row: next() counts them.
  __device__ void skip() {
    asm volatile("cp.async.commit_group;" ::: "memory");
    ++asked_;
  }
  // kAhead calls of ask() or skip() have come before the first call, and one more before each other one.
  __device__ void next(CudaPiece<T>* pieces) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 1) : "memory");
    const uint32_t from = place(asked_);  // The oldest one: asked_ - kAhead.
#pragma unroll
    for (int p = 0; p < Team::kPieces; ++p) {
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        Unit& unit = pieces[p].unit[i];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(unit.word[0]), "=r"(unit.word[1]), "=r"(unit.word[2]), "=r"(unit.word[3])
                     : "r"(from + offset(p, i))
                     : "memory");
      }
    }
  }

 private:
  static constexpr int kUnits = CudaPiece<T>::kUnits;
  static constexpr uint32_t kUnitBytes = 32 * sizeof(Unit);  // Of all lanes.
  static constexpr __device__ uint32_t offset(int p, int i) {
    return static_cast<uint32_t>(p * kUnits + i) * kUnitBytes;
  }
  __device__ uint32_t place(uint32_t number) const {
    return begin_ + number % kAhead * static_cast<uint32_t>(Team::kPieces * kUnits) * kUnitBytes;
  }

  const Team& team_;
  const uint32_t begin_;
  uint32_t asked_ = 0;
};

}  // namespace moeway::exec
