// Which instructions a translation unit was built with, against those that this processor has.
#pragma once

namespace moeway::exec {

// What the processor lacks for the code of the translation unit that calls it; null if nothing. Static: every
// translation unit has other flags, and so its own answer.
static inline const char* missing_instructions() {
#if defined(__x86_64__) && defined(__FMA__)
  // Sums are fused multiply-adds. Every processor with AVX2 has F16C, which clang 14 cannot ask for.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return "AVX2, FMA and F16C (x86-64-v3); build with -DMOEWAY_X86_64_V3=OFF for older processors";
  }
#endif
  return nullptr;
}

}  // namespace moeway::exec
