// What this build is instrumented with, so that tests can do less where everything is slower.
#pragma once

namespace moeway::multi_rank {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
inline constexpr bool kSanitizer = kThreadSanitizer || kAddressSanitizer;

// A number of repetitions: as it is, or a fraction of it (but one at least) under a sanitizer.
constexpr int scaled(int count) {
  const int fewer = kThreadSanitizer ? count / 8 : kAddressSanitizer ? count / 4 : count;
  return fewer > 0 ? fewer : 1;
}

}  // namespace moeway::multi_rank
