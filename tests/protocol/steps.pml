/* What a call does (round.pml): puts, what a receiving half looks for and checks, and what is forgotten when. */

#define kIdle 0
#define kCounts 1
#define kHeaders 2
#define kResults 3
#define kEnded 4
#define kFailed 5
#define WAITING (phase == kCounts || phase == kHeaders || phase == kResults)

/* What a rank waits for: whom, and whether it is there. */
#define AWAITED (s % W)
#define COUNTS_HERE ARRIVED(count_signal[REGION(o, me, s, e)], e)
#define HEADER_HERE ARRIVED(header_signal[SLOT(o, me, s, e, i)], e)
#define AWAITED_RESULT RESULT(o, me, s / W, RESULT_INDEX(KEPT(o, e), s / W, s % W), e)
#define RESULT_HERE ARRIVED(result_signal[AWAITED_RESULT], e)

#ifdef BROKEN_FLAG_WITHOUT_EPOCH
#define FORGET(word) skip
#else
#define FORGET(word) word = 0
#endif

/* Own routes go once every put that needs them has landed and no combine_recv will. */
inline forget_sent(k) {
  if
  :: (flight[k] & DISPATCH_PUTS) == 0 && LAST(num_sent[k / 2], k) <= num_received[k / 2] && combine[k] == 0 ->
     sent[k] = 0
  :: else
  fi
}

/* Whether, at dispatch_send, the use of received tokens of epoch `epoch` where they lie has ended. Promised: always. In
 * a round that combines it is safe until combine_send: the source waits for the result before it sends there again. */
#if defined(VIEW_UNTIL_COMBINE_SEND)
#define VIEW_HAS_ENDED(epoch) (combine[KEPT(o, epoch)] != 1)
#elif defined(BROKEN_VIEW_AFTER_SEND)
#define VIEW_HAS_ENDED(epoch) false
#elif defined(BROKEN_SEND_BEFORE_RECV)
#define VIEW_HAS_ENDED(epoch) (num_received[o] >= epoch)
#else
#define VIEW_HAS_ENDED(epoch) true
#endif

/* Received tokens that were used where they lie: epoch `epoch` of object o, for the last time. */
inline end_view(epoch) {
  x = 0;
  do
  :: x < W * M ->
     if
     :: from[KEPT(o, epoch) * W * M + x] > 0 ->
        assert(payload[SLOT(o, me, x / M, epoch, x % M)] == epoch || view_overwritten);
        FORGET(payload[SLOT(o, me, x / M, epoch, x % M)])
     :: else
     fi;
     x++
  :: else -> x = 0; break
  od
}

/* Where received tokens came from goes when both their view has ended and their results have landed. */
inline forget_from(epoch) {
  x = 0;
  do
  :: x < W * M ->
     if
     :: combine[KEPT(o, epoch)] != 1 && ((flight[KEPT(o, epoch)] >> (FIRST_RESULT + x)) & 1) == 0 ->
        from[KEPT(o, epoch) * W * M + x] = 0
     :: else
     fi;
     x++
  :: else -> x = 0; break
  od
}

/* All that dispatch_recv has read, looked at once more at its very end: the rows were copied in between. */
inline check_dispatch() {
  x = 0;
  do
  :: x < WAITED_RANKS ->
     assert(SIGNALLED(count_signal[REGION(o, me, x, e)], e) || signal_beyond_epoch);
     assert(count_data[REGION(o, me, x, e)] / (M + 1) == e || counts_overwritten);
     y = 0;
     do
     :: y < count_data[REGION(o, me, x, e)] % (M + 1) ->
        assert(SIGNALLED(header_signal[SLOT(o, me, x, e, y)], e) || signal_beyond_epoch);
        assert(header_data[SLOT(o, me, x, e, y)] / (M * W) == e || header_overwritten);
        assert(payload[SLOT(o, me, x, e, (header_data[SLOT(o, me, x, e, y)] / W) % M)] == e || payload_overwritten);
        FORGET(header_signal[SLOT(o, me, x, e, y)]);
        FORGET(header_data[SLOT(o, me, x, e, y)]);
        y++
     :: else -> y = 0; break
     od;
     FORGET(count_data[REGION(o, me, x, e)]);
     x++
  :: else -> x = 0; break
  od;
#if defined(BROKEN_SEND_BEFORE_RECV)
  if
  :: num_sent[o] > e -> end_view(e); forget_from(e)
  :: else
  fi;
#elif defined(BROKEN_VIEW_AFTER_SEND)
  if
  :: e > 1 -> end_view(e - 1); forget_from(e - 1)
  :: else
  fi;
#endif
  forget_sent(KEPT(o, e))
}

/* The same for combine_recv. */
inline check_combine() {
  x = 0;
  do
  :: x < W * M ->
     if
     :: SENT(KEPT(o, e), x / W, x % W) ->
        y = RESULT(o, me, x / W, RESULT_INDEX(KEPT(o, e), x / W, x % W), e);
        assert(SIGNALLED(result_signal[y], e) || signal_beyond_epoch);
        assert(result_data[y] == e * W + x % W || result_overwritten);
        FORGET(result_signal[y]);
        FORGET(result_data[y]);
        y = 0
     :: else
     fi;
     x++
  :: else -> x = 0; break
  od;
  forget_sent(KEPT(o, e))
}

#define put_counts(o, dst, e)                                                              \
  assert(GROWS(count_signal[REGION(o, dst, me, e)], e) || signal_went_back);               \
  count_data[REGION(o, dst, me, e)] = (e) * (M + 1) + NUM_SLOTS(KEPT(o, e), dst);          \
  count_signal[REGION(o, dst, me, e)] = e

#define put_payload(o, dst, e, t) payload[SLOT(o, dst, me, e, t)] = e

#define put_header(o, dst, e, t)                                                           \
  y = SLOT(o, dst, me, e, HEADER_INDEX(KEPT(o, e), t, dst));                               \
  assert(GROWS(header_signal[y], e) || signal_went_back);                                  \
  header_data[y] = ((e) * M + (t)) * W + RESULT_INDEX(KEPT(o, e), t, dst);                 \
  header_signal[y] = e;                                                                    \
  y = 0

#define put_result(o, owner, e, t)                                                         \
  y = RESULT(o, owner, t, from[KEPT(o, e) * W * M + (owner) * M + (t)] - 1, e);            \
  assert(GROWS(result_signal[y], e) || signal_went_back);                                  \
  result_data[y] = (e) * W + me;                                                           \
  result_signal[y] = e;                                                                    \
  y = 0

/* Put number `b` of kept set `k` lands. */
inline land() {
  if
  :: b < FIRST_RESULT -> x = LAST(num_sent[k / 2], k)
  :: else -> x = LAST(num_received[k / 2], k)
  fi;
  if
  :: b < FIRST_PAYLOAD -> put_counts(k / 2, b, x)
  :: b >= FIRST_PAYLOAD && b < FIRST_HEADER ->
     put_payload(k / 2, (b - FIRST_PAYLOAD) % W, x, (b - FIRST_PAYLOAD) / W)
  :: b >= FIRST_HEADER && b < FIRST_RESULT ->
     put_header(k / 2, (b - FIRST_HEADER) % W, x, (b - FIRST_HEADER) / W)
  :: b >= FIRST_RESULT ->
     put_result(k / 2, (b - FIRST_RESULT) / M, x, (b - FIRST_RESULT) % M);
     if
     :: num_sent[k / 2] > x -> from[k * W * M + b - FIRST_RESULT] = 0
     :: else
     fi
  fi;
  flight[k] = flight[k] & ~(1 << b);
  forget_sent(k);
  if
  :: IN_FLIGHT == 0 && phase == kIdle && LAST_WAS_SEND -> last = 0
  :: else
  fi;
  x = 0
}

/* What is awaited next in dispatch_recv: counts of rank s; then headers i of rank s; then nothing. */
inline seek_header() {
  do
  :: s < WAITED_RANKS && i < count_data[REGION(o, me, s, e)] % (M + 1) -> break
  :: s < WAITED_RANKS && i >= count_data[REGION(o, me, s, e)] % (M + 1) -> s++; i = 0
  :: s == WAITED_RANKS ->
     s = 0;
     phase = kIdle;
     num_received[o] = e;
     break
  od
}

/* In combine_recv: the result of (token, rank) s of the set that was sent. */
inline seek_result() {
  do
  :: s < W * M && SENT(KEPT(o, e), s / W, s % W) -> break
  :: s < W * M && !SENT(KEPT(o, e), s / W, s % W) -> s++
  :: s == W * M ->
     s = 0;
     phase = kIdle;
     combine[KEPT(o, e)] = 0;
     break
  od
}

/* Counts go to every rank, zero or not. */
#if defined(BROKEN_SILENT_RANK)
#define SENDS_COUNTS(k, dst) (me < WAITED_RANKS)
#elif defined(BROKEN_NO_COUNTS_WHEN_EMPTY)
#define SENDS_COUNTS(k, dst) (NUM_SLOTS(k, dst) > 0)
#else
#define SENDS_COUNTS(k, dst) true
#endif

inline begin_dispatch_send() {
  e = num_sent[o] + 1;
  if
  :: e > 1 && VIEW_HAS_ENDED(e - 1) -> end_view(e - 1); forget_from(e - 1)
  :: else
  fi;
  num_sent[o] = e;
  k = KEPT(o, e);
  assert((flight[k] & DISPATCH_PUTS) == 0 || put_outlived_its_epoch);
  sent[k] = b;
  b = 0;
  do
  :: x < W ->
     if
     :: SENDS_COUNTS(k, x) && x == me -> put_counts(o, x, e)
     :: SENDS_COUNTS(k, x) && x != me -> flight[k] = flight[k] | (1 << x)
     :: else
     fi;
     x++
  :: else -> x = 0; break
  od;
  do
  :: x < W * M ->
     if
     :: ((sent[k] >> x) & 1) && x % W == me -> put_payload(o, me, e, x / W); put_header(o, me, e, x / W)
     :: ((sent[k] >> x) & 1) && x % W != me ->
        flight[k] = flight[k] | (1 << (FIRST_PAYLOAD + x)) | (1 << (FIRST_HEADER + x))
     :: else
     fi;
     x++
  :: else -> x = 0; break
  od;
  k = 0;
  e = 0
}

inline begin_combine_send() {
  k = KEPT(o, e);
#ifdef VIEW_UNTIL_COMBINE_SEND
  if
  :: num_sent[o] > e -> end_view(e)
  :: else
  fi;
#endif
  assert((flight[k] & ~DISPATCH_PUTS) == 0 || put_outlived_its_epoch);
  combine[k] = 2;
  x = 0;
  do
  :: x < W * M ->
     if
     :: from[k * W * M + x] > 0 && x / M == me -> put_result(o, me, e, x % M)
     :: from[k * W * M + x] > 0 && x / M != me -> flight[k] = flight[k] | (1 << (FIRST_RESULT + x))
     :: else
     fi;
     x++
  :: else -> x = 0; break
  od;
  if
  :: num_sent[o] > e -> forget_from(e)
  :: else
  fi;
  k = 0;
  e = 0
}

inline begin_call() {
  last = call;
  o = call / 16;
  call = call % 16;
  if
  :: call == kDispatchSend -> begin_dispatch_send()
  :: call == kDispatchRecv || call == kDispatchRecvAlone ->
     e = num_received[o] + 1;
     combine[KEPT(o, e)] = (call == kDispatchRecv);
     phase = kCounts
  :: call == kCombineSend || call == kCombineSend + 1 ->
     e = LAST(num_received[o], call - kCombineSend);
     begin_combine_send()
  :: call == kCombineRecv || call == kCombineRecv + 1 ->
     e = LAST(num_received[o], call - kCombineRecv);
     phase = kResults;
     seek_result()
  :: call == kEnd -> phase = kEnded
  fi;
  call = 0
}

inline say(what) {
  do
  :: x < W -> word[x * W + me] = what; x++
  :: else -> x = 0; break
  od
}
