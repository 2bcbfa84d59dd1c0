// Part of c_api.h, which includes it: what an AllToAll has moved and waited for.
#ifndef MOEWAY_C_API_STATS_H_
#define MOEWAY_C_API_STATS_H_

#include <moeway/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

// What this rank has moved since creation.
typedef struct moeway_all_to_all_stats {
  uint32_t struct_size;
  int64_t num_dispatches;
  int64_t tokens_sent;    // (token, destination rank) pairs: payloads written to ranks, this one included.
  int64_t routes_sent;    // Routes of the tokens that this rank sends: what would be sent without sending a token once
                          // per rank.
  int64_t rows_received;  // Rows of this rank's experts, without dropped ones.
  int64_t rows_dropped;   // Rows that max_recv_tokens had no room for.
  int64_t dispatch_sent_bytes;  // Payload bytes (row and scales) written to ranks, this one included.
  int64_t combine_sent_bytes;   // Result bytes written to ranks, this one included.
} moeway_all_to_all_stats;

static inline void moeway_all_to_all_stats_init(moeway_all_to_all_stats* stats) {
  memset(stats, 0, sizeof(*stats));
  stats->struct_size = (uint32_t)sizeof(*stats);
}
// Waits for nothing: on a CUDA rank it counts as far as kernels have come, which may still run.
MOEWAY_API moeway_status moeway_all_to_all_get_stats(const moeway_all_to_all* all_to_all,
                                                     moeway_all_to_all_stats* stats);

// What this rank and one peer (or itself) have exchanged since creation. Two readings give what calls between them have
// moved.
typedef struct moeway_peer_stats {
  uint32_t struct_size;
  int64_t tokens_sent;          // Tokens that went there in dispatch,
  int64_t tokens_received;      // and that came from there.
  int64_t dispatch_sent_bytes;  // Their payload (row and scales).
  int64_t dispatch_received_bytes;
  int64_t combine_sent_bytes;  // Results that went back there.
  // Nanoseconds for which this rank has waited for the peer's part of a call. While it waits for several peers, time counts
  // for one of them, so that the sum over peers is what waiting has taken. The first 16 looks of a wait are not counted,
  // and on a CUDA rank nor are up to 16 at its end: some 10 us each; there the first block of a launch stands for all.
  int64_t waited_ns;
} moeway_peer_stats;

static inline void moeway_peer_stats_init(moeway_peer_stats* stats) {
  memset(stats, 0, sizeof(*stats));
  stats->struct_size = (uint32_t)sizeof(*stats);
}
// `stats` [num_ranks], each initialised; num_ranks is the number of ranks. Waits for nothing, as get_stats.
MOEWAY_API moeway_status moeway_all_to_all_get_peer_stats(const moeway_all_to_all* all_to_all, int32_t num_ranks,
                                                          moeway_peer_stats* stats);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MOEWAY_C_API_STATS_H_
