// What the ranks of a job can do together before there is any symmetric memory: gather bytes. Implemented in
// src/bootstrap, used by transports and core at creation; never in a round.
#pragma once

#include <moeway/status.h>

#include <cstddef>
#include <type_traits>
#include <vector>

#include "base/deadline.h"

namespace moeway {

// Used by one thread at a time. After a failed call the ranks no longer agree on where they are: every later call fails
// at once with the first failure.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective. `bytes` must be equal on all ranks; `out` has room for size() * bytes and gets every rank's bytes in
  // rank order. Fails on all ranks that can be reached, naming the ranks that are missing when the deadline passes.
  virtual Status all_gather(const void* in, size_t bytes, void* out, Deadline deadline) = 0;

  // Not collective, and does not wait. This rank will take part in no call any more: the others' next one, or the one
  // that they are in, fails with `why`, as far as they can be told. For a rank that cannot even say so in its turn.
  virtual void abandon(const Status& why) = 0;

  // all_gather of one plain value per rank.
  template <class T>
  Result<std::vector<T>> all_gather_value(const T& value, Deadline deadline) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    if (Status status = all_gather(&value, sizeof(T), all.data(), deadline); !status.ok()) return status;
    return all;
  }

  // Every rank tells how its part of a collective step went. OK only if it went well everywhere; else, on all ranks,
  // the failure of the lowest rank that failed, with its rank in front of the message.
  Status agree(const Status& mine, Deadline deadline);
};

}  // namespace moeway
