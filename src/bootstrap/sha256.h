// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for the proof that a rank knows the job's secret. Small rather than
// fast: a meeting hashes a few hundred bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moeway::bootstrap {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  void add(const void* data, size_t bytes);
  void add(std::string_view text) { add(text.data(), text.size()); }
  // The digest of everything added. Last call on this object.
  Digest finish();

 private:
  void take_block(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  size_t filled_ = 0;  // Bytes of block_ in use.
  uint64_t total_bytes_ = 0;
};

class HmacSha256 {
 public:
  explicit HmacSha256(std::string_view key);
  void add(const void* data, size_t bytes) { inner_.add(data, bytes); }
  void add(std::string_view text) { inner_.add(text); }
  // Last call on this object.
  Digest finish();

 private:
  Sha256 inner_;
  Sha256 outer_;
};

// Takes the same time wherever they differ, so that nobody can guess a code byte by byte.
bool equal_in_constant_time(const Digest& a, const Digest& b);

}  // namespace moeway::bootstrap
