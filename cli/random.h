// Numbers that look random and follow from a seed: the same on every machine and in every process.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace moeway::cli {

// The output function of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that spreads every bit over all others.
constexpr uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// One number for a tuple; the order of the tuple counts.
constexpr uint64_t mix(std::initializer_list<uint64_t> values) {
  uint64_t state = 0;
  for (const uint64_t value : values) state = mix(state ^ value);
  return state;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix(seed)) {}
  uint64_t next() { return mix(state_++); }
  // In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // In [0, n), for n far below 2^53.
  uint64_t below(uint64_t n) { return static_cast<uint64_t>(uniform() * static_cast<double>(n)); }

 private:
  uint64_t state_;
};

}  // namespace moeway::cli
