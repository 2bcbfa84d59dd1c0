// How a rank and rank 0 make sure of each other before they trust a connection. All messages have a fixed size.
//
//   rank    -> rank 0   Greeting   version, a nonce
//   rank 0  -> rank     Greeting   version, a nonce
//   rank    -> rank 0   Proof      rank, num_ranks, and a code over them and both nonces, keyed with the secret
//   rank 0  -> rank     Verdict    admitted or why not, and a code over that, what the rank said, and both nonces
//   rank 0  -> rank     Verdict    when all are there, or the meeting has failed: the same
//
// The codes are HMAC-SHA256. The secret never crosses the wire, a recorded meeting cannot be played again (the nonces
// differ), and no side's code passes for the other's (the labels differ). The rank proves itself first, so that
// strangers who knock at rank 0 get no code to guess the secret from.
#pragma once

#include <moeway/status.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "base/status_bytes.h"
#include "bootstrap/sha256.h"

namespace moeway::bootstrap {

// Changes whenever a message of this folder changes.
inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr uint32_t kRankMagic = 0x5257656d;    // "meWR"
inline constexpr uint32_t kCenterMagic = 0x4357656d;  // "meWC"

using Nonce = std::array<uint8_t, 32>;

struct Greeting {  // The same in all versions.
  uint32_t magic;
  uint32_t version;
  Nonce nonce;
};

struct Claim {
  uint32_t rank;
  uint32_t num_ranks;
  uint64_t left_ms;  // How long the rank will wait for the others.
};

struct Proof {
  Claim claim;
  Digest code;
};

struct Verdict {
  StatusBytes outcome;  // MOEWAY_OK: admitted.
  Digest code;          // Zeros for who has not proved to know the secret.
};

// Nonces for one meeting of two.
struct Nonces {
  Nonce rank;
  Nonce center;
};

Result<Nonce> make_nonce();
Digest proof_code(std::string_view secret, const Nonces& nonces, const Claim& claim);
// Which of the two verdicts.
enum class Step : uint32_t { kAdmission = 1, kMeeting = 2 };
Digest verdict_code(std::string_view secret, const Nonces& nonces, const Claim& claim, Step step,
                    const StatusBytes& outcome);

}  // namespace moeway::bootstrap
