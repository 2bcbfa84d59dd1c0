/* Memory of the model (round.pml): the shared words, where they lie, what may be said of them, and puts in flight. */

/* The last epoch of a parity among the first `number`. */
#define LAST(number, parity) ((number) - ((number) + (parity)) % 2)

/* Where things lie. `o` object, `e` epoch, `t` token of its source or owner, `i` header, `q` result index. */
#ifdef BROKEN_SHARED_REGION
#define OBJECT(o) 0
#else
#define OBJECT(o) (o)
#endif
#define REGION(o, dst, src, e) (((OBJECT(o) * W + (dst)) * W + (src)) * DEPTH + (e) % DEPTH)
#define SLOT(o, dst, src, e, i) (REGION(o, dst, src, e) * M + (i))
#define RESULT(o, owner, t, q, e)                                                          \
  ((((OBJECT(o) * W + (owner)) * M + (t)) * W + (q)) * RESULT_DEPTH + (e) % RESULT_DEPTH)
#define KEPT(o, e) ((o) * 2 + (e) % 2) /* private memory of a rank */

byte count_signal[OBJECTS * W * W * DEPTH];
byte count_data[OBJECTS * W * W * DEPTH];          /* epoch * (M + 1) + number of slots */
byte header_signal[OBJECTS * W * W * DEPTH * M];
byte header_data[OBJECTS * W * W * DEPTH * M];     /* (epoch * M + token) * W + result index */
byte payload[OBJECTS * W * W * DEPTH * M];         /* epoch; addressed by token, has no signal of its own */
byte result_signal[OBJECTS * W * M * W * RESULT_DEPTH];
byte result_data[OBJECTS * W * M * W * RESULT_DEPTH]; /* epoch * W + writer */

/* Never set: they give the assertions below their names. */
hidden byte signal_went_back, signal_beyond_epoch, counts_stale, counts_overwritten, header_stale, header_overwritten,
    payload_stale, payload_overwritten, view_overwritten, result_stale, result_overwritten, put_outlived_its_epoch,
    closed_too_early, plan_too_long;

/* What a wait is for. */
#ifdef BROKEN_FLAG_WITHOUT_EPOCH
#define ARRIVED(signal, e) (signal != 0)
#define SIGNALLED(signal, e) (true)
#define GROWS(signal, e) (true)
#else
#define ARRIVED(signal, e) (signal >= (e))
#define SIGNALLED(signal, e) (signal == (e))
#define GROWS(signal, e) (signal < (e))
#endif

/* What ranks say about themselves, after all their puts have landed: word[dst * W + src]. */
byte word[W * W];
#define kClosed 1
#define kAborted 2
#ifdef BROKEN_CLOSES_EARLY
#define MAY_CLOSE true
#else
#define MAY_CLOSE (IN_FLIGHT == 0)
#endif

/* Bits of `flight`, one set per parity: counts to each rank, then payload and header of each (token, destination), then
 * results of each (source, token). A put is ready once what must land before it has landed. A dispatch may begin while
 * results of two epochs before still fly, so land() works out the epoch of either kind by itself. */
#define FIRST_PAYLOAD W
#define FIRST_HEADER (W + W * M)
#define FIRST_RESULT (W + 2 * W * M)
#define DISPATCH_PUTS ((1 << FIRST_RESULT) - 1)
#define ALL_COUNTS ((1 << W) - 1)
#define ALL_TOKENS ((1 << (W * M)) - 1)
#ifdef BROKEN_HEADER_BEFORE_PAYLOAD
#define HELD(f) (((f) & (ALL_TOKENS << FIRST_HEADER)) >> (W * M))
#else
#define HELD(f) (((f) & (ALL_TOKENS << FIRST_PAYLOAD)) << (W * M))
#endif
#define READY(f) ((f) & ~HELD(f))
#if OBJECTS > 1
#define IN_FLIGHT (flight[0] | flight[1] | flight[2] | flight[3])
#else
#define IN_FLIGHT (flight[0] | flight[1])
#endif

/* Whether token t of kept set k goes to rank dst; the place of its header among those to dst, and of its result among
 * those of t. */
#define SENT(k, t, dst) ((sent[k] >> ((t) * W + (dst))) & 1)
#if M > 1
#define NUM_SLOTS(k, dst) (SENT(k, 0, dst) + SENT(k, 1, dst))
#define HEADER_INDEX(k, t, dst) ((t) * SENT(k, 0, dst))
#else
#define NUM_SLOTS(k, dst) SENT(k, 0, dst)
#define HEADER_INDEX(k, t, dst) 0
#endif
#define RESULT_INDEX(k, t, dst) (((dst) > 0) * SENT(k, t, 0) + ((dst) > 1) * SENT(k, t, 1))

#ifdef BROKEN_SILENT_RANK
#define WAITED_RANKS (W - 1) /* The last rank has no tokens, everybody knows it, and so it sends nothing. */
#else
#define WAITED_RANKS W
#endif

