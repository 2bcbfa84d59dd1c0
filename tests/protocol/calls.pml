/* Which call comes next (round.pml): the rules of the caller's side, and the plan that all ranks follow. */

/* The calls made so far that not every rank has begun; at[r] of them were begun by rank r. */
#ifdef BROKEN_GO_ON_AFTER_DEADLINE
#define PLAN (4 * N + 1)
#else
#define PLAN (10 * OBJECTS)
#endif
#define kDispatchSend 1
#define kDispatchRecv 2
#define kDispatchRecvAlone 3 /* of a round that does not combine */
#define kCombineSend 4       /* + parity of its epoch */
#define kCombineRecv 6       /* + parity of its epoch */
#define kEnd 8
#define CALL(o, call) ((o) * 16 + (call))
#ifdef BROKEN_OWN_ORDER
#define PLANS W
#define MINE me
#else
#define PLANS 1
#define MINE 0
#endif
byte plan[PLANS * PLAN];
byte plan_length[PLANS];
byte at[W];

/* Whether a rank whose puts are in flight may receive, and which call it may begin. */
#define LAST_WAS_SEND (last % 16 == kDispatchSend || last % 16 == kCombineSend || last % 16 == kCombineSend + 1)
#define IS_SECOND_HALF(c)                                                                  \
  ((last % 16 == kDispatchSend && ((c) == last + 1 || (c) == last + 2)) ||                 \
   ((last % 16 == kCombineSend || last % 16 == kCombineSend + 1) && (c) == last + 2))
#if defined(WEAK)
#define MAY_RECEIVE true
#define MAY_BEGIN(c) true
#elif defined(FUSED)
#define MAY_RECEIVE true
#define MAY_BEGIN(c) (IN_FLIGHT == 0 || IS_SECOND_HALF(c))
#else
#define MAY_RECEIVE (IN_FLIGHT == 0)
#define MAY_BEGIN(c) (IN_FLIGHT == 0)
#endif
#define MAY_BEGIN_NEXT                                                                     \
  (at[me] < plan_length[MINE] && MAY_BEGIN(plan[MINE * PLAN + at[me]]) ||                  \
   at[me] == plan_length[MINE] && (MAY_BEGIN(0) || MAY_BEGIN(last + 2)))

/* In larger runs there is one plan: every round combines, and the next dispatch_send comes between the halves of the
 * combine. Not together with FUSED, whose receiving half must be free to follow. */
#ifdef ONE_PLAN
#define OVERLAPS_SEND(o) (combine[KEPT(o, num_sent[o])] == 2 || num_sent[o] == 0)
#define OVERLAPS_RECV(o) (combine[KEPT(o, num_sent[o] + 1)] == 0)
#define OVERLAPS_COMBINE(o, parity) (num_sent[o] == N || (num_sent[o] + parity) % 2 == 1)
#else
#define OVERLAPS_SEND(o) true
#define OVERLAPS_RECV(o) true
#define OVERLAPS_COMBINE(o, parity) true
#endif

#if defined(ONE_PLAN) || defined(ALWAYS_COMBINE)
#define MAY_LEAVE_ALONE false
#else
#define MAY_LEAVE_ALONE true
#endif

/* Which calls a rank may make next. */
#ifdef BROKEN_SEND_BEFORE_RECV
#define RECEIVED_ENOUGH(o) (num_sent[o] - num_received[o] < 2)
#else
#define RECEIVED_ENOUGH(o) (num_received[o] == num_sent[o])
#endif
#ifdef BROKEN_SEND_BEFORE_COMBINE_RECV
#define COMBINED(o) (combine[KEPT(o, num_sent[o] + 1)] != 1)
#else
#define COMBINED(o) (combine[KEPT(o, num_sent[o] + 1)] == 0)
#endif
#define MAY_DISPATCH_SEND(o) (num_sent[o] < N && RECEIVED_ENOUGH(o) && COMBINED(o) && OVERLAPS_SEND(o))
#define MAY_DISPATCH_RECV(o) \
  (num_received[o] < num_sent[o] && combine[KEPT(o, num_received[o] + 1)] == 0 && OVERLAPS_RECV(o))
#define MAY_COMBINE_SEND(o, parity) (combine[KEPT(o, parity)] == 1)
#define MAY_COMBINE_RECV(o, parity) (combine[KEPT(o, parity)] == 2 && OVERLAPS_COMBINE(o, parity))
#define FINISHED(o) (num_received[o] == N && combine[KEPT(o, 0)] == 0 && combine[KEPT(o, 1)] == 0)
#define CHOICE(c, rule) :: (rule) && MAY_BEGIN(c) -> call = c
#define CHOICES(o)                                                                         \
  CHOICE(CALL(o, kDispatchSend), MAY_DISPATCH_SEND(o))                                     \
  CHOICE(CALL(o, kDispatchRecv), MAY_DISPATCH_RECV(o))                                     \
  CHOICE(CALL(o, kDispatchRecvAlone), MAY_DISPATCH_RECV(o) && MAY_LEAVE_ALONE)             \
  CHOICE(CALL(o, kCombineSend), MAY_COMBINE_SEND(o, 0))                                    \
  CHOICE(CALL(o, kCombineSend + 1), MAY_COMBINE_SEND(o, 1))                                \
  CHOICE(CALL(o, kCombineRecv), MAY_COMBINE_RECV(o, 0))                                    \
  CHOICE(CALL(o, kCombineRecv + 1), MAY_COMBINE_RECV(o, 1))

/* Where the tokens of a round go, as bits t * W + dst of `b`: to any set of ranks, or in larger runs to fewer sets. */
inline choose_routes() {
#if defined(ALL_RANKS)
  b = ALL_TOKENS;
#elif defined(NONE_NEXT_OR_ALL)
  if
  :: b = 0
  :: b = 1 << ((me + 1) % W)
  :: b = ALL_TOKENS
  fi;
#else
  do
  :: x < W * M ->
     if
#ifdef OTHER_RANKS
     :: x % W != me -> b = b | (1 << x)
#else
     :: b = b | (1 << x)
#endif
     :: skip
     fi;
     x++
  :: else -> x = 0; break
  od;
#endif
#ifdef BROKEN_SILENT_RANK
  b = b * (me < WAITED_RANKS)
#endif
#ifdef BROKEN_SEND_BEFORE_COMBINE_RECV
  if
  :: combine[KEPT(0, num_sent[0] + 1)] != 0 -> b = sent[KEPT(0, num_sent[0] + 1)] /* combine_recv still needs them */
  :: else
  fi
#endif
}

/* The next call of the plan, which the first rank to get there chooses; and where the tokens of a dispatch_send go. */
inline choose_call() {
  if
  :: at[me] < plan_length[MINE] -> call = plan[MINE * PLAN + at[me]]
  :: else ->
     if
     CHOICES(0)
#if OBJECTS > 1
     CHOICES(1)
     CHOICE(kEnd, FINISHED(0) && FINISHED(1))
#else
     CHOICE(kEnd, FINISHED(0))
#endif
     fi
  fi;
  if
  :: call % 16 == kDispatchSend -> choose_routes()
  :: else
  fi
}

#if defined(BROKEN_OWN_ORDER)
#define ALL_HAVE_BEGUN (at[me] > 0)
#elif W > 2
#define ALL_HAVE_BEGUN (at[0] > 0 && at[1] > 0 && at[2] > 0)
#else
#define ALL_HAVE_BEGUN (at[0] > 0 && at[1] > 0)
#endif

/* Enters the call into the plan, and forgets what every rank has begun: states shall not differ by their past alone. */
inline note_call() {
  if
  :: at[me] == plan_length[MINE] ->
     assert(plan_length[MINE] < PLAN || plan_too_long);
     plan[MINE * PLAN + plan_length[MINE]] = call;
     plan_length[MINE]++
  :: else
  fi;
  at[me]++;
  do
  :: ALL_HAVE_BEGUN ->
     x = 1;
     do
     :: x < plan_length[MINE] -> plan[MINE * PLAN + x - 1] = plan[MINE * PLAN + x]; x++
     :: else -> break
     od;
     plan_length[MINE]--;
     plan[MINE * PLAN + plan_length[MINE]] = 0;
     x = 0;
     do
     :: x < W && (x == me || MINE == 0 && PLANS == 1) -> at[x]--; x++
     :: x < W && !(x == me || MINE == 0 && PLANS == 1) -> x++
     :: else -> x = 0; break
     od
  :: else -> break
  od
}

