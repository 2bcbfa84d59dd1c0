// A lane's piece of a row on a CPU: a run of elements long enough for full vector registers, where it lies if it may
// stay there.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "exec/atomic.h"
#include "exec/numeric.h"
#include "exec/unit.h"

namespace moeway::exec {

template <class T>
class HostPiece {
 public:
  static constexpr int kElements = 256;

  void load(const T* from, int num, bool wanted = true) { elements_ = wanted && num > 0 ? from : nullptr; }
  void load_elements(const T* from, int num) { load(from, num); }

  // What a self-validating slot holds; whether all of it has come.
  bool take(const T* slot, int num) {
    const auto* words = reinterpret_cast<const uint64_t*>(slot);
    for (int i = 0; i < num_words(num); ++i) {
      const uint64_t word = load_relaxed<Scope::kSystem>(words + i);  // Relaxed: the word tells that it has come.
      if (static_cast<uint32_t>(word) == kAllOnes || static_cast<uint32_t>(word >> 32) == kAllOnes) return false;
      std::memcpy(reinterpret_cast<std::byte*>(own_.data()) + 8 * i, &word, 8);
    }
    elements_ = own_.data();
    return true;
  }
  static void put_back(T* slot, int num) {
    auto* words = reinterpret_cast<uint64_t*>(slot);
    // Relaxed: the owner's next counts tell that it is done.
    for (int i = 0; i < num_words(num); ++i) store_relaxed<Scope::kSystem>(words + i, ~uint64_t{0});
  }
  // Into a slot, of which whole units may be written.
  void put(T* slot, int num, bool self_validating) const {
    if (!self_validating) return store(slot, num);
    auto* words = reinterpret_cast<uint64_t*>(slot);
    const auto bytes = static_cast<int64_t>(sizeof(T)) * num;
    for (int i = 0; i < num_words(num); ++i) {
      uint32_t half[2] = {0, 0};
      const int64_t left = bytes - 8 * i;
      std::memcpy(half, reinterpret_cast<const std::byte*>(elements_) + 8 * i,
                  static_cast<size_t>(left < 8 ? left : 8));
      // Relaxed: the word tells that it has come.
      store_relaxed<Scope::kSystem>(words + i, uint64_t{sendable(half[1])} << 32 | sendable(half[0]));
    }
  }
  // acc[i] += weight * element i, each with one rounding.
  void add_to(float (&acc)[kElements], float weight, int num) const {
    if (elements_ == nullptr) return;
    if (num == kElements) {  // A constant number of steps: this is the loop that compilers unroll and vectorise.
      for (int i = 0; i < kElements; ++i) acc[i] = fused_multiply_add(weight, to_float(elements_[i]), acc[i]);
    } else {
      for (int i = 0; i < num; ++i) acc[i] = fused_multiply_add(weight, to_float(elements_[i]), acc[i]);
    }
  }
  void round(const float (&acc)[kElements], int num) {
    if (num == kElements) {
      for (int i = 0; i < kElements; ++i) own_[static_cast<size_t>(i)] = from_float<T>(acc[i]);
    } else {
      for (int i = 0; i < num; ++i) own_[static_cast<size_t>(i)] = from_float<T>(acc[i]);
    }
    elements_ = own_.data();
  }
  // By elements: a memcpy may become an instruction that ThreadSanitizer does not see.
  void store(T* to, int num) const {
    if (num == kElements) {
      for (int i = 0; i < kElements; ++i) to[i] = elements_[i];
    } else {
      for (int i = 0; i < num; ++i) to[i] = elements_[i];
    }
  }
  void store_elements(T* to, int num) const { store(to, num); }

 private:
  static int num_words(int num) { return (num * static_cast<int>(sizeof(T)) + 7) / 8; }

  const T* elements_ = nullptr;
  alignas(64) std::array<T, kElements> own_;
};

}  // namespace moeway::exec
