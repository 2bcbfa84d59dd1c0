/* The round of docs/protocols/direct.md: dispatch and combine between W ranks of any speed, with two regions in turn
 * and no barrier. check.sh runs it, in several sizes and with faults put in; the document says what is modelled.
 *
 * A word of data holds the epoch that wrote it (a result also its writer), so whatever is read can be compared with
 * what should be there. A call of the library hands its puts over to `flight`; a put lands in one step, the signal with
 * the data that it covers. Puts land in any order, except that a payload lands before its header, and
 *   - before the call returns (the default: calls of one half), or
 *   - before the receiving half returns, when that is the next call (FUSED: one kernel does both, some teams still send
 *     while others receive already), or
 *   - at any later time (WEAK: a network that reorders and delays).
 * With ONE_ORDER the lowest put lands first. What a rank puts into its own segment lands at once: no other rank looks.
 *
 * What has been read for the last time is set to 0, which stands for every earlier epoch: signals are only ever
 * compared with later ones, so earlier epochs cannot be told apart.
 *
 * Which call comes next is chosen freely among those that the rules allow, once for all ranks (`plan`): combine or not,
 * dispatch_send of the next round before or after each half of the combine, any interleaving of two objects.
 */
#ifndef W
#define W 2 /* ranks, at most 3 */
#endif
#ifndef N
#define N 4 /* rounds of each object */
#endif
#ifndef M
#define M 1 /* tokens of a rank, at most 2 */
#endif
#ifndef OBJECTS
#define OBJECTS 1 /* AllToAll objects, at most 2 */
#endif
#ifndef DEPTH
#define DEPTH 2 /* regions that take turns */
#endif
#ifndef RESULT_DEPTH
#define RESULT_DEPTH DEPTH
#endif

#include "memory.pml"
#include "calls.pml"
#include "steps.pml"

proctype rank(byte me) {
  byte phase, last; /* what it does; the call that it began last, where that still matters */
  byte o, e, s, i;  /* object and epoch of the call, and what the call waits for */
  byte num_sent[OBJECTS], num_received[OBJECTS];
  byte combine[OBJECTS * 2];      /* 0 nothing to do, 1 combine_send is next, 2 combine_recv is next */
  byte sent[OBJECTS * 2];         /* own tokens: bit t * W + dst */
  byte from[OBJECTS * 2 * W * M]; /* received tokens: 0, or 1 + result index */
  short flight[OBJECTS * 2];      /* puts that have not landed; see memory.pml */
  byte call, k, b, x, y;          /* within one step; 0 between steps */

  do
  /* A put lands: any that is ready, or the first. */
  :: atomic {
       IN_FLIGHT != 0 ->
       do
       :: READY(flight[k]) == 0 -> k++
#if !defined(ONE_ORDER) && OBJECTS > 1
       :: k < 3 && READY(flight[k]) != 0 && (flight[3] | (k < 2) * flight[2] | (k < 1) * flight[1]) != 0 -> k++
#elif !defined(ONE_ORDER)
       :: k < 1 && READY(flight[k]) != 0 && flight[1] != 0 -> k++
#endif
       :: READY(flight[k]) != 0 -> break
       od;
       do
       :: !((READY(flight[k]) >> b) & 1) -> b++
#ifndef ONE_ORDER
       :: ((READY(flight[k]) >> b) & 1) && (READY(flight[k]) >> (b + 1)) != 0 -> b++
#endif
       :: ((READY(flight[k]) >> b) & 1) -> break
       od;
       d_step { land(); k = 0; b = 0 }
     }
  /* dispatch_recv: the counts of rank s. */
  :: d_step {
       phase == kCounts && MAY_RECEIVE && COUNTS_HERE ->
       assert(SIGNALLED(count_signal[REGION(o, me, s, e)], e) || signal_beyond_epoch);
       assert(count_data[REGION(o, me, s, e)] / (M + 1) == e || counts_stale);
       s++;
       if
       :: s == WAITED_RANKS ->
          s = 0;
          phase = kHeaders;
          seek_header()
       :: else
       fi;
       x = 0
     }
  /* dispatch_recv: header i of rank s, and the payload that it tells of. */
  :: d_step {
#ifdef BROKEN_COUNTS_AS_SIGNAL
       phase == kHeaders && MAY_RECEIVE ->
#else
       phase == kHeaders && MAY_RECEIVE && HEADER_HERE ->
       assert(SIGNALLED(header_signal[SLOT(o, me, s, e, i)], e) || signal_beyond_epoch);
#endif
       assert(header_data[SLOT(o, me, s, e, i)] / (M * W) == e || header_stale);
       x = (header_data[SLOT(o, me, s, e, i)] / W) % M;
       assert(payload[SLOT(o, me, s, e, x)] == e || payload_stale);
       assert(from[KEPT(o, e) * W * M + s * M + x] == 0 || put_outlived_its_epoch);
       from[KEPT(o, e) * W * M + s * M + x] = 1 + header_data[SLOT(o, me, s, e, i)] % W;
       i++;
       seek_header();
       x = 0
     }
  /* combine_recv: the result of (token, rank) s. */
  :: d_step {
       phase == kResults && MAY_RECEIVE && RESULT_HERE ->
       x = AWAITED_RESULT;
       assert(SIGNALLED(result_signal[x], e) || signal_beyond_epoch);
       assert(result_data[x] == e * W + s % W || result_stale);
       s++;
       seek_result();
       x = 0
     }
  /* A call returns and the next begins. */
  :: atomic {
       phase == kIdle && MAY_BEGIN_NEXT ->
       d_step {
         if
         :: last % 16 == kDispatchRecv || last % 16 == kDispatchRecvAlone -> check_dispatch()
         :: last % 16 == kCombineRecv || last % 16 == kCombineRecv + 1 -> check_combine()
         :: else
         fi;
         e = 0
       }
       choose_call();
       d_step { note_call(); begin_call() }
     }
  :: atomic { phase == kEnded && MAY_CLOSE && word[me * W + me] != kClosed -> say(kClosed) }
  :: atomic { phase == kEnded && IN_FLIGHT == 0 && word[me * W + me] == kClosed -> break }
  /* Whoever waits looks at the peer's word now and then. A peer that has closed has done all that is waited for. */
  :: d_step {
       WAITING && word[me * W + AWAITED] == kClosed ->
       assert((phase == kCounts && COUNTS_HERE) || (phase == kHeaders && HEADER_HERE) ||
              (phase == kResults && RESULT_HERE) || closed_too_early);
       x = 0
     }
#ifdef FAILURES
  /* A deadline passes: early, late, or because somebody has stopped. */
#ifdef ONE_DEADLINE
  :: atomic { me == 0 && WAITING ->
#else
  :: atomic { WAITING ->
#endif
#ifdef BROKEN_GO_ON_AFTER_DEADLINE
       if
       :: phase == kResults -> combine[KEPT(o, e)] = 0
       :: else -> num_received[o] = e
       fi;
       phase = kIdle;
       last = 0;
       s = 0;
       i = 0
     }
#else
       phase = kFailed
     }
  :: atomic { WAITING && word[me * W + AWAITED] == kAborted -> phase = kFailed }
#ifdef BROKEN_NO_ABORT
  :: atomic { phase == kFailed && IN_FLIGHT == 0 -> break }
#else
  :: atomic { phase == kFailed && IN_FLIGHT == 0 -> say(kAborted); break }
#endif
#endif
#ifdef STOPS
  /* The process ends: whatever it has not yet put is never put. */
  :: atomic { true -> break }
#endif
#endif
  od
}

init {
  atomic {
    run rank(0);
    run rank(1);
#if W > 2
    run rank(2)
#endif
  }
}
