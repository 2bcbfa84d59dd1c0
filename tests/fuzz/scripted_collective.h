// A collective whose other ranks are hostile: they gather what this rank gives, changed as a target's input says.
#pragma once

#include "base/collective.h"
#include "base/format.h"
#include "fuzz/input.h"

namespace moeway::fuzz {

class ScriptedCollective final : public Collective {
 public:
  ScriptedCollective(int rank, int size, Input& input) : rank_(rank), size_(size), input_(input) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void abandon(const Status&) override {}

  // A byte for the number of changes; each change is an offset into all ranks' bytes and a piece to be put there.
  Status all_gather(const void* in, size_t bytes, void* out, Deadline) override {
    if (!failure_.ok()) return failure_;
    const int num_changes = input_.byte() % 8;
    if (num_changes == 7) return failure_ = error(MOEWAY_PEER_LOST, "a peer has gone");
    auto* const all = static_cast<uint8_t*>(out);
    const size_t total = bytes * static_cast<size_t>(size_);
    for (int r = 0; r < size_ && bytes > 0; ++r) std::memcpy(all + static_cast<size_t>(r) * bytes, in, bytes);
    for (int i = 0; i < num_changes; ++i) {
      const size_t offset = total == 0 ? 0 : input_.value<uint16_t>() % total;
      const Bytes piece = input_.piece();
      std::copy_n(piece.begin(), std::min(piece.size(), total - offset), all + offset);
    }
    // Nobody else writes this rank's place.
    if (bytes > 0) std::memcpy(all + static_cast<size_t>(rank_) * bytes, in, bytes);
    return {};
  }

 private:
  const int rank_;
  const int size_;
  Input& input_;
  Status failure_;
};

}  // namespace moeway::fuzz
