// Ranks with a host transport, and what they must be able to do with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "transport/host/host_transport.h"
#include "unit/collective_checks.h"
#include "unit/rank_processes.h"

namespace moeway::unit {

using Body = std::function<std::string(transport::Transport&, Collective&)>;

inline std::string with_transport(Result<std::unique_ptr<Collective>> collective, const Body& body) {
  if (!collective.ok()) return collective.status().to_string();
  const auto made = transport::make_host_transport(*collective.value(), in_ms(10000));
  if (!made.ok()) return made.status().to_string();
  return body(*made.value(), *collective.value());
}

inline std::vector<std::string> as_threads(int num_ranks, const Body& body) {
  const auto meeting = bootstrap::make_thread_meeting(num_ranks).value();
  return run_threads(num_ranks, [&](int rank) { return with_transport(bootstrap::meet_threads(meeting, rank), body); });
}

inline std::vector<std::string> as_processes(int num_ranks, const Body& body) {
  const TemporaryDirectory directory;
  return run_processes(num_ranks, [&](int rank) {
    return with_transport(bootstrap::meet_local(directory.path(), rank, num_ranks, std::chrono::milliseconds(10000)),
                          body);
  });
}

// Every rank writes a part of every segment, then checks what all have written.
inline std::string everybody_writes_everywhere(transport::SymmetricHeap& heap, Collective& collective, int round) {
  const auto num_ranks = static_cast<size_t>(collective.size());
  const auto rank = static_cast<size_t>(collective.rank());
  const size_t part = heap.bytes() / num_ranks;
  for (int r = 0; r < collective.size(); ++r) {
    if (reinterpret_cast<uintptr_t>(heap.base(r)) % 128 != 0) return "not aligned";
    for (size_t i = 0; i < part; ++i) {
      std::byte& at = heap.base(r)[rank * part + i];
      if (at != std::byte{0}) return fmt::format("byte {} of rank {} is not zero", rank * part + i, r);
      at = std::byte{sent_byte(collective.rank(), round, i)};
    }
  }
  if (const auto all = collective.all_gather_value(0, in_ms(10000)); !all.ok()) return all.status().to_string();
  for (int r = 0; r < collective.size(); ++r) {
    for (size_t i = 0; i < part * num_ranks; ++i) {
      if (heap.base(r)[i] != std::byte{sent_byte(static_cast<int>(i / part), round, i % part)})
        return fmt::format("byte {} of rank {} is wrong", i, r);
    }
  }
  return "";
}

inline std::string shares_heaps(transport::Transport& transport, Collective& collective) {
  int round = 0;
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{100003}}) {
    ++round;
    const auto heap = transport.allocate(bytes, collective, in_ms(10000));
    if (!heap.ok()) return heap.status().to_string();
    if (heap.value()->bytes() != bytes) return "another size";
    const std::string outcome = everybody_writes_everywhere(*heap.value(), collective, round);
    if (!outcome.empty()) return outcome;
  }
  return "";
}

inline std::string outcome_of(transport::Transport& transport, Collective& collective, size_t bytes) {
  return transport.allocate(bytes, collective, in_ms(10000)).status().to_string();
}

}  // namespace moeway::unit
