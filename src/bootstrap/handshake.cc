#include "bootstrap/handshake.h"

#include <sys/random.h>

#include <cerrno>
#include <type_traits>

#include "base/format.h"

namespace moeway::bootstrap {
namespace {

// The codes are taken over the bytes of these structs.
static_assert(std::has_unique_object_representations_v<Claim>);
static_assert(std::has_unique_object_representations_v<StatusBytes>);

HmacSha256 begin_code(std::string_view label, std::string_view secret, const Nonces& nonces, const Claim& claim) {
  HmacSha256 hmac(secret);
  hmac.add(label);
  hmac.add(&kProtocolVersion, sizeof(kProtocolVersion));
  hmac.add(nonces.rank.data(), nonces.rank.size());
  hmac.add(nonces.center.data(), nonces.center.size());
  hmac.add(&claim, sizeof(claim));
  return hmac;
}

}  // namespace

Result<Nonce> make_nonce() {
  Nonce nonce;
  for (;;) {
    const ssize_t got = getrandom(nonce.data(), nonce.size(), 0);
    if (got == static_cast<ssize_t>(nonce.size())) return nonce;
    if (got < 0 && errno != EINTR) return system_error("getrandom", errno);
  }
}

Digest proof_code(std::string_view secret, const Nonces& nonces, const Claim& claim) {
  return begin_code("moeway rank", secret, nonces, claim).finish();
}

Digest verdict_code(std::string_view secret, const Nonces& nonces, const Claim& claim, Step step,
                    const StatusBytes& outcome) {
  HmacSha256 hmac = begin_code("moeway center", secret, nonces, claim);
  hmac.add(&step, sizeof(step));
  hmac.add(&outcome, sizeof(outcome));
  return hmac.finish();
}

}  // namespace moeway::bootstrap
