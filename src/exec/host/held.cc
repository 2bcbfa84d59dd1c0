// Moving held tokens on a CPU.
#include <algorithm>
#include <cstring>

#include "exec/host/team.h"

namespace moeway::exec {

// Bytes of one part to another of the same length; at least one of the two is contiguous.
void HostTeam::copy(const Part& to, const Part& from) const {
  if (to.bytes == 0) return;
  if (!to.contiguous() || !from.contiguous()) {
    lanes(to.bytes, [&](int64_t byte) { *to.at(byte) = *from.at(byte); });
    return;
  }
  perturb();
  if (num_lanes_ == 1) {
    std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes));
    return;
  }
  constexpr int64_t kPiece = sizeof(Unit);
  lanes((to.bytes + kPiece - 1) / kPiece, [&](int64_t i) {
    const int64_t n = std::min(kPiece, to.bytes - i * kPiece);
    std::memcpy(to.data + i * kPiece, from.data + i * kPiece, static_cast<size_t>(n));
  });
}

void HostTeam::put(const Held& held, std::byte* slot, const TokenFormat& format, bool self_validating, int) const {
  if (!self_validating) {
    const TokenBytes to = in_slot(slot, format);
    copy(to.row, held.from.row);
    copy(to.scales, held.from.scales);
    return;
  }
  auto* units = reinterpret_cast<Unit*>(slot);
  lanes(format.num_units(), [&](int i) { store_unit(units + i, sendable(gather_unit(&held.from, i))); });
}

}  // namespace moeway::exec
