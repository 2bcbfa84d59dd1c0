// Text that comes from outside, of another process or the environment: it may lack its end, be of any length, and hold what
// would steer the terminal of who reads it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace moeway {

// What stands before the first zero byte, or all of it.
template <size_t N>
std::string_view text_of(const std::array<char, N>& bytes) {
  return {bytes.data(), static_cast<size_t>(std::find(bytes.begin(), bytes.end(), '\0') - bytes.begin())};
}

// The same with '?' for each control character.
inline std::string printable(std::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  }
  return printable;
}

// The same, cut off where it is long, for a message that quotes it.
inline std::string quotable(std::string_view text) {
  constexpr size_t kLongest = 200;
  return printable(text.substr(0, kLongest)) + (text.size() > kLongest ? "..." : "");
}

}  // namespace moeway
