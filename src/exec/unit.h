// A unit: 16 bytes that are written and read in one access, so that a reader sees all of a write or nothing of it. What
// tells from within whether it has come needs no signal beside it:
//
// - a tagged unit carries 96 bits of its writer's and the epoch (48 bits), so a reader knows which write it sees;
// - a self-validating unit holds any data but an all-ones word. Its place holds all ones until it is written, and the
//   reader puts them back.
//
// A GPU has such accesses. Elsewhere a unit is two 64-bit words, and the second of a tagged one (with the epoch) is
// released after the first; of a self-validating unit each word tells for itself.
#pragma once

#include <cstdint>

#include "exec/atomic.h"
#include "exec/compiler.h"

namespace moeway::exec {

struct alignas(16) Unit {
  uint32_t word[4];
};

inline constexpr uint32_t kAllOnes = ~uint32_t{0};

MOEWAY_FN Unit all_ones() { return {{kAllOnes, kAllOnes, kAllOnes, kAllOnes}}; }

// Whether a self-validating unit has been written.
MOEWAY_FN bool has_come(const Unit& unit) {
  return unit.word[0] != kAllOnes && unit.word[1] != kAllOnes && unit.word[2] != kAllOnes && unit.word[3] != kAllOnes;
}
// What goes in place of a word that may not be sent. In bf16, f16, f32 and fp8 e4m3 an all-ones word is NaNs, and so is
// this one.
MOEWAY_FN uint32_t sendable(uint32_t word) { return word == kAllOnes ? 0x7fff7fffu : word; }
MOEWAY_FN Unit sendable(const Unit& unit) {
  return {{sendable(unit.word[0]), sendable(unit.word[1]), sendable(unit.word[2]), sendable(unit.word[3])}};
}

#if defined(__CUDA_ARCH__)

// Relaxed, of system scope: what the unit says about itself is all that a reader relies on.
MOEWAY_FN Unit load_unit(const Unit* p) {
  uint64_t low, high;
  asm volatile("{ .reg .b128 t; ld.relaxed.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
               : "=l"(low), "=l"(high)
               : "l"(p)
               : "memory");
  return {{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
           static_cast<uint32_t>(high >> 32)}};
}
MOEWAY_FN void store_unit(Unit* p, const Unit& unit) {
  const uint64_t low = uint64_t{unit.word[1]} << 32 | unit.word[0], high = uint64_t{unit.word[3]} << 32 | unit.word[2];
  asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t; }" ::"l"(p), "l"(low),
               "l"(high)
               : "memory");
}
MOEWAY_FN Unit load_tagged(const Unit* p) { return load_unit(p); }
MOEWAY_FN void store_tagged(Unit* p, const Unit& unit) { store_unit(p, unit); }

// Plain accesses to memory that nobody else touches meanwhile; they leave the L1 cache to others.
MOEWAY_FN Unit load_plain(const Unit* p) {
  Unit unit;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(unit.word[0]), "=r"(unit.word[1]), "=r"(unit.word[2]), "=r"(unit.word[3])
               : "l"(p)
               : "memory");
  return unit;
}
// Without a branch, so that several stay in flight; zeros unless `wanted`.
MOEWAY_FN Unit load_plain_if(bool wanted, const Unit* p) {
  Unit unit{};
  asm volatile("{ .reg .pred q; setp.ne.b32 q, %5, 0; @q ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "+r"(unit.word[0]), "+r"(unit.word[1]), "+r"(unit.word[2]), "+r"(unit.word[3])
               : "l"(p), "r"(static_cast<int>(wanted))
               : "memory");
  return unit;
}
MOEWAY_FN void store_plain(Unit* p, const Unit& unit) {
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(unit.word[0]),
               "r"(unit.word[1]), "r"(unit.word[2]), "r"(unit.word[3])
               : "memory");
}
// The same, of memory that nobody writes while the kernel runs.
MOEWAY_FN Unit load_constant(const Unit* p) {
  Unit unit;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(unit.word[0]), "=r"(unit.word[1]), "=r"(unit.word[2]), "=r"(unit.word[3])
               : "l"(p));
  return unit;
}

#else

MOEWAY_FN Unit unit_of(uint64_t low, uint64_t high) {
  return {{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
           static_cast<uint32_t>(high >> 32)}};
}
MOEWAY_FN uint64_t low_of(const Unit& unit) { return uint64_t{unit.word[1]} << 32 | unit.word[0]; }
MOEWAY_FN uint64_t high_of(const Unit& unit) { return uint64_t{unit.word[3]} << 32 | unit.word[2]; }
MOEWAY_FN uint64_t* words_of(const Unit* p) { return reinterpret_cast<uint64_t*>(const_cast<Unit*>(p)); }

MOEWAY_FN Unit load_unit(const Unit* p) {
  // Relaxed: each word tells by itself whether it has been written.
  return unit_of(load_relaxed<Scope::kSystem>(words_of(p)), load_relaxed<Scope::kSystem>(words_of(p) + 1));
}
MOEWAY_FN void store_unit(Unit* p, const Unit& unit) {
  store_relaxed<Scope::kSystem>(words_of(p), low_of(unit));  // Relaxed: see load_unit.
  store_relaxed<Scope::kSystem>(words_of(p) + 1, high_of(unit));
}
MOEWAY_FN Unit load_tagged(const Unit* p) {
  // Acquire; makes the first word visible, which was written before.
  const uint64_t high = load_acquire<Scope::kSystem>(words_of(p) + 1);
  return unit_of(load_relaxed<Scope::kSystem>(words_of(p)), high);  // Relaxed: ordered by the acquire.
}
MOEWAY_FN void store_tagged(Unit* p, const Unit& unit) {
  store_relaxed<Scope::kSystem>(words_of(p), low_of(unit));  // Relaxed: ordered by the release.
  // Release; pairs with the acquire in load_tagged.
  store_release<Scope::kSystem>(words_of(p) + 1, high_of(unit));
}
MOEWAY_FN Unit load_plain(const Unit* p) { return *p; }
MOEWAY_FN Unit load_plain_if(bool wanted, const Unit* p) { return wanted ? *p : Unit{}; }
MOEWAY_FN void store_plain(Unit* p, const Unit& unit) { *p = unit; }
MOEWAY_FN Unit load_constant(const Unit* p) { return *p; }

#endif

// ---- Tags

// Epochs are compared by their low 48 bits: at a round a microsecond they come again after nine years.
inline constexpr uint64_t kTagMask = (uint64_t{1} << 48) - 1;

MOEWAY_FN Unit tagged(uint32_t first, uint32_t second, uint16_t third, uint64_t epoch) {
  return {{first, second, uint32_t{third} | static_cast<uint32_t>(epoch >> 32) << 16, static_cast<uint32_t>(epoch)}};
}
MOEWAY_FN uint64_t tag_of(const Unit& unit) { return uint64_t{unit.word[2] >> 16} << 32 | unit.word[3]; }
MOEWAY_FN bool has_tag(const Unit& unit, uint64_t epoch) { return tag_of(unit) == (epoch & kTagMask); }

// A count with its epoch (32 bits) in one word, for words that are written in every epoch: an old one is of the epoch
// before last, so that 32 bits tell.
MOEWAY_FN uint64_t tagged_count(uint32_t count, uint64_t epoch) { return epoch << 32 | count; }
MOEWAY_FN bool has_tag(uint64_t word, uint64_t epoch) {
  return static_cast<uint32_t>(word >> 32) == static_cast<uint32_t>(epoch);
}
// The epoch that the tag of a count stands for, seen from one that is near it.
MOEWAY_FN uint64_t epoch_of(uint64_t word, uint64_t near) {
  if (word == 0) return 0;
  const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(word >> 32) - static_cast<uint32_t>(near));
  return near + static_cast<uint64_t>(static_cast<int64_t>(ahead));
}

}  // namespace moeway::exec
