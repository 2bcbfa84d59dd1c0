// Moving held tokens on a CPU.
#include <algorithm>
#include <array>
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

// A lane takes whole blocks.
void HostTeam::hold_quantised(Held* held, const TokenBytes& from, bool, const TokenFormat& format, Scaling scaling,
                              std::byte* room, int) const {
  held->from = in_slot(room, format);
  sync();  // All have read what the room held before.
  lanes((format.row_bytes + kScaleBlock - 1) / kScaleBlock, [&](int64_t block) {
    const int64_t first = block * kScaleBlock, n = std::min<int64_t>(kScaleBlock, format.row_bytes - first);
    std::array<uint16_t, kScaleBlock> bits{};
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(&bits[static_cast<size_t>(i)], from.row.at(2 * (first + i)), sizeof(uint16_t));
    uint32_t largest = 0;
    for (const uint16_t b : bits) largest = std::max<uint32_t>(largest, b & 0x7fffu);
    const BlockScale scale = block_scale(largest, scaling);
    for (int64_t i = 0; i < n; ++i)
      held->from.row.data[first + i] =
          static_cast<std::byte>(to_e4m3(to_float(Bf16{bits[static_cast<size_t>(i)]}) * scale.factor));
    const int64_t bytes =
        scaling == Scaling::kUe8m0 ? 1 : 4;  // The low ones come first on every host that this runs on.
    std::memcpy(held->from.scales.data + block * bytes, &scale.bits, static_cast<size_t>(bytes));
  });
  sync();
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
