// How the ranks of a job tell each other whether they can go on: through memory that all of them share.
#pragma once

#include <moeway/communicator.h>
#include <moeway/status.h>

#include <array>
#include <cstddef>

namespace moeway::cli {

// Made before the ranks are started, whether they are threads or processes. Throws std::bad_alloc.
class Agreement {
 public:
  static constexpr size_t kSharedBytes = 128;

  explicit Agreement(int num_ranks);
  ~Agreement();
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  // Collective. OK if all ranks are; else the rank's own failure, or that of the first rank that has one.
  Status agree(Communicator& communicator, const Status& mine) const;
  // Bytes that rank 0 writes before an agree() and all may read after it.
  std::array<std::byte, kSharedBytes>& shared() const;

 private:
  struct Slot;
  int num_ranks_;
  Slot* slots_;
};

}  // namespace moeway::cli
