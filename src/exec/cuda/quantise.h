// Quantising a token while it is fetched into registers (exec/quantise.h), for CudaTeam.
#pragma once

#include <cstdint>

#include "exec/quantise.h"
#include "exec/token_bytes.h"

namespace moeway::exec {

// Of two bf16 each, without their signs, the larger; NaN if one of them is.
__device__ inline uint32_t larger_of(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

// The largest element of a block without its sign, as the bits of a bf16, on all the eight lanes that hold the block.
__device__ inline uint32_t block_largest(const Unit (&in)[2]) {
  uint32_t largest = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    largest = larger_of(largest, in[0].word[w] & 0x7fff7fffu);
    largest = larger_of(largest, in[1].word[w] & 0x7fff7fffu);
  }
  largest = larger_of(largest, largest >> 16);
#pragma unroll
  for (int lane = 1; lane < 8; lane *= 2) largest = larger_of(largest, __shfl_xor_sync(kAllOnes, largest, lane));
  return largest & 0xffffu;
}

// The bf16 elements of unit `u` of the quantised row; zeros behind its end.
__device__ inline void load_unquantised(Unit (&in)[2], const TokenBytes& from, bool whole, int u, int row_units) {
  in[0] = in[1] = Unit{};
  if (u >= row_units) return;
  if (whole) {
    in[0] = load_constant(from.unit(2 * u));
    if (2 * u + 1 < from.row.num_units()) in[1] = load_constant(from.unit(2 * u + 1));
  } else {
    const TokenBytes copy = from;
    in[0] = gather_unit(&copy, 2 * u);
    in[1] = gather_unit(&copy, 2 * u + 1);
  }
}

// Fills a lane's units first, first + kSize, ... of a token in `format` from its bf16 row. Blocks lie in eight lanes that are
// next to each other; their scales meet in `room`, of units_of(scales_bytes) units, that the team's lanes share and that keeps
// them for the chunks that follow. `sync` is a barrier of the lanes. What pads the last unit of scales is anything.
template <int kSize, int kHeld, class Sync>
__device__ void quantise_units(Unit (&unit)[kHeld], const TokenBytes& from, bool whole, int first,
                               const TokenFormat& format, Scaling scaling, std::byte* room, Sync sync) {
  const int row_units = format.row_units(), num_units = format.num_units();
  Unit in[kHeld][2];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) load_unquantised(in[j], from, whole, first + j * kSize, row_units);
  sync();  // All have read the scales of the token before.
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int u = first + j * kSize;
    const BlockScale scale = block_scale(block_largest(in[j]), scaling);
    unit[j] = quantised(in[j][0], in[j][1], scale.factor);
    constexpr int kUnits = kScaleBlock / 16;
    if (u >= row_units || u % kUnits != 0) continue;
    if (scaling == Scaling::kUe8m0) {
      room[u / kUnits] = static_cast<std::byte>(scale.bits);
    } else {
      reinterpret_cast<uint32_t*>(room)[u / kUnits] = scale.bits;
    }
  }
  sync();  // All scales of the chunk are there.
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int u = first + j * kSize;
    if (u >= row_units && u < num_units) unit[j] = reinterpret_cast<const Unit*>(room)[u - row_units];
  }
}

}  // namespace moeway::exec
