// What every Collective must do, whatever is behind it. A check returns "" or what went wrong, so that it can run in a
// forked child.
#pragma once

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/collective.h"

namespace moeway::unit {

inline Deadline in_ms(int ms) { return Deadline::after(std::chrono::milliseconds(ms)); }

// The byte `i` that `rank` sends in `round`.
inline uint8_t sent_byte(int rank, int round, size_t i) {
  return static_cast<uint8_t>(static_cast<size_t>(rank) * 31 + static_cast<size_t>(round) * 7 + i * 3 + i / 251);
}

// Gathers of many sizes, none and megabytes among them.
inline std::string gathers_in_rank_order(Collective& collective, size_t most_bytes = 300000) {
  int round = 0;
  for (const size_t bytes : {size_t{8}, size_t{0}, size_t{1}, size_t{4097}, most_bytes, size_t{3}}) {
    ++round;
    const auto num_ranks = static_cast<size_t>(collective.size());
    std::vector<uint8_t> in(bytes), out(bytes * num_ranks + 1, 0xEE);
    for (size_t i = 0; i < bytes; ++i) in[i] = sent_byte(collective.rank(), round, i);
    const Status status = collective.all_gather(in.data(), bytes, out.data(), in_ms(10000));
    if (!status.ok()) return fmt::format("round {}: {}", round, status.to_string());
    for (size_t r = 0; r < num_ranks; ++r) {
      for (size_t i = 0; i < bytes; ++i) {
        if (out[r * bytes + i] != sent_byte(static_cast<int>(r), round, i))
          return fmt::format("round {}: byte {} of rank {} is wrong", round, i, r);
      }
    }
    if (out[bytes * num_ranks] != 0xEE) return fmt::format("round {}: wrote behind the output", round);
  }
  return "";
}

// The outcome of one gather of `bytes`; the call after a failed one must give the same at once.
inline std::string gather_outcome(Collective& collective, size_t bytes, int ms) {
  std::vector<uint8_t> in(bytes), out(bytes * static_cast<size_t>(collective.size()));
  const Status status = collective.all_gather(in.data(), bytes, out.data(), in_ms(ms));
  if (status.ok()) return "OK";
  const auto begin = std::chrono::steady_clock::now();
  const Status again = collective.all_gather(in.data(), bytes, out.data(), in_ms(ms));
  if (again.to_string() != status.to_string()) return "a later call says something else: " + again.to_string();
  if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(100)) return "a later call takes long";
  return status.to_string();
}

// What the ranks hear when rank `odd` gives up while the others are in a gather, or before.
inline std::string outcome_when_one_gives_up(Collective& collective, int odd) {
  if (collective.rank() != odd) return gather_outcome(collective, 100, 20000);
  collective.abandon(Status(MOEWAY_OUT_OF_MEMORY, "no room"));
  return gather_outcome(collective, 100, 20000);
}

}  // namespace moeway::unit
