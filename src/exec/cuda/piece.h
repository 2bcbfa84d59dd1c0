// A lane's piece of a row on a GPU: 8 elements in 16-byte units, in registers.
#pragma once

#include <cstdint>

#include "exec/numeric.h"
#include "exec/unit.h"

namespace moeway::exec {

// Elements of a unit as floats, and floats as a unit.
__device__ inline void unpack(const Unit& unit, Bf16, float* to) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(unit.word[i] << 16);
    to[2 * i + 1] = __uint_as_float(unit.word[i] & 0xffff0000u);
  }
}
__device__ inline void unpack(const Unit& unit, F16, float* to) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = to_float(F16{static_cast<uint16_t>(unit.word[i])});
    to[2 * i + 1] = to_float(F16{static_cast<uint16_t>(unit.word[i] >> 16)});
  }
}
__device__ inline void unpack(const Unit& unit, float, float* to) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(unit.word[i]);
}
__device__ inline Unit pack(Bf16, const float* from) {
  Unit unit;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(unit.word[i]) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
  return unit;
}
__device__ inline Unit pack(F16, const float* from) {
  Unit unit;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(unit.word[i]) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
  return unit;
}
__device__ inline Unit pack(float, const float* from) {
  return {{__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]), __float_as_uint(from[3])}};
}

// A unit of elements that lie anywhere: the slow way that always works.
template <class T>
__device__ __noinline__ Unit load_unit_elements(const T* from, int num) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  uint64_t half[2] = {0, 0};
  for (int i = 0; i < num && i < 128 / kBits; ++i) {
    uint32_t bits = 0;
    memcpy(&bits, from + i, sizeof(T));
    const uint64_t placed = uint64_t{bits} << (i * kBits % 64);
    (i * kBits < 64 ? half[0] : half[1]) |= placed;
  }
  return {{static_cast<uint32_t>(half[0]), static_cast<uint32_t>(half[0] >> 32), static_cast<uint32_t>(half[1]),
           static_cast<uint32_t>(half[1] >> 32)}};
}
template <class T>
__device__ __noinline__ void store_unit_elements(T* to, int num, Unit unit) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  const uint64_t low = uint64_t{unit.word[1]} << 32 | unit.word[0], high = uint64_t{unit.word[3]} << 32 | unit.word[2];
  for (int i = 0; i < num && i < 128 / kBits; ++i) {
    const auto bits = static_cast<uint32_t>((i * kBits < 64 ? low : high) >> (i * kBits % 64));
    memcpy(to + i, &bits, sizeof(T));
  }
}

template <class T>
struct CudaPiece {
  static constexpr int kElements = 8;
  static constexpr int kUnits = kElements * static_cast<int>(sizeof(T)) / 16;
  static constexpr int kUnitElements = 16 / static_cast<int>(sizeof(T));

  Unit unit[kUnits];

  // From plain memory, if `wanted`: rows in whole units, or element by element.
  __device__ void load(const T* from, int num, bool wanted = true) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
      unit[i] = load_plain_if(wanted && num > i * kUnitElements, reinterpret_cast<const Unit*>(from) + i);
  }
  __device__ void load_elements(const T* from, int num) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) unit[i] = load_unit_elements(from + i * kUnitElements, num - i * kUnitElements);
  }
  // What a self-validating slot holds; whether all of it has come.
  __device__ bool take(const T* slot, int num) {
    bool come = true;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (num > i * kUnitElements) {
        unit[i] = load_unit(reinterpret_cast<const Unit*>(slot) + i);
        come = come && has_come(unit[i]);
      }
    }
    return come;
  }
  __device__ static void put_back(T* slot, int num) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (num > i * kUnitElements) store_plain(reinterpret_cast<Unit*>(slot) + i, all_ones());
    }
  }
  // Into a slot, of which whole units may be written.
  __device__ void put(T* slot, int num, bool self_validating) const {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (num <= i * kUnitElements) continue;
      if (self_validating)
        store_unit(reinterpret_cast<Unit*>(slot) + i, sendable(unit[i]));
      else
        store_plain(reinterpret_cast<Unit*>(slot) + i, unit[i]);
    }
  }
  // acc[i] += weight * element i, each with one rounding.
  __device__ void add_to(float (&acc)[kElements], float weight, int) const {
    float value[kElements];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) unpack(unit[i], T{}, value + i * kUnitElements);
#pragma unroll
    for (int i = 0; i < kElements; ++i) acc[i] = fused_multiply_add(weight, value[i], acc[i]);
  }
  __device__ void round(const float (&acc)[kElements], int) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) unit[i] = pack(T{}, acc + i * kUnitElements);
  }
  __device__ void store(T* to, int num) const {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (num > i * kUnitElements) store_plain(reinterpret_cast<Unit*>(to) + i, unit[i]);
    }
  }
  __device__ void store_elements(T* to, int num) const {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) store_unit_elements(to + i * kUnitElements, num - i * kUnitElements, unit[i]);
  }
};

}  // namespace moeway::exec
