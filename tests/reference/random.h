// Numbers that look random and are the same everywhere for the same seed, so that a printed seed repeats a test.
#pragma once

#include <cstdint>

namespace reference {

// A hash of one word (splitmix64's finaliser): every bit of the input moves every bit of the output.
constexpr uint64_t hash(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

template <class... Rest>
constexpr uint64_t hash(uint64_t first, uint64_t second, Rest... rest) {
  return hash(hash(first) ^ second, static_cast<uint64_t>(rest)...);
}

// A stream of such numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(hash(seed)) {}

  uint64_t next() { return hash(state_++); }
  // From low to high, both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  // From 0 up to, and without, 1.
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  template <class T, uint64_t N>
  const T& pick(const T (&choices)[N]) {
    return choices[next() % N];
  }

 private:
  uint64_t state_;
};

}  // namespace reference
