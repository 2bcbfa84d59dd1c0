#!/usr/bin/env bash
# Checks the round's model (round.pml) with spin: what must hold, in several sizes, and faults that must be found.
# Prints a table; exit code 0 only if every line came out as it must, 77 if spin or a C compiler is missing.
# One core, about two minutes, at most 1 GiB of memory. Works in a temporary directory that is removed at the end.
# usage: check.sh [pattern]      only the lines whose name matches the extended regular expression
set -u
cd "$(dirname "$0")" || exit 1
model=$PWD/round.pml
pattern=${1:-.}
compiler=${CC:-cc}
for tool in spin "$compiler"; do
  if ! command -v "$tool" > /dev/null; then
    echo "SKIPPED: the protocol check needs '$tool', which is not installed"
    exit 77
  fi
done

work=$(mktemp -d "${TMPDIR:-/tmp}/moeway-protocol.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work" || exit 1

num_lines=0
num_wrong=0

# Builds ./pan: flags of the compiler, then definitions for the model.
build() {
  local -a flags
  read -ra flags <<< "$1"
  shift
  rm -rf ./* && spin -a "${@/#/-D}" "$model" > spin.log 2>&1 && ! grep -q Error spin.log &&
    "$compiler" -w -DSAFETY -DMEMLIM=3000 "${flags[@]}" -o pan pan.c > cc.log 2>&1
}

line() {  # ok|WRONG, name, states, milliseconds, outcome
  num_lines=$((num_lines + 1))
  [ "$1" = ok ] || num_wrong=$((num_wrong + 1))
  printf '%-5s  %-74s %12s %6d.%d s  %s\n' "$1" "$2" "$3" $(($4 / 1000)) $(($4 % 1000 / 100)) "$5"
}

now_ms() { date +%s%3N; }
num_states() { awk '/states, stored/ { print $1 }' pan.log; }
why_not() { cat spin.log cc.log pan.log 2> /dev/null | grep -E 'rror|violated|invalid|memory' | head -n 1; }

# Name, definitions: every reachable state is visited, no assertion fails, nobody waits for ever, and every line of the
# model was used.
holds() {
  [[ $1 =~ $pattern ]] || return 0
  local name=$1 start verdict=WRONG outcome
  shift
  start=$(now_ms)
  if build "-O2 -DCOLLAPSE" "$@" && timeout 600 ./pan -m100000 > pan.log 2>&1 && grep -q 'errors: 0' pan.log &&
    ! grep -qE 'max search depth too small|out of memory' pan.log; then
    outcome='holds, all states'
    verdict=ok
    if ! grep -A 99 'unreached in proctype rank' pan.log | grep -q '(0 of [0-9]* states)'; then
      outcome='holds, but parts of the model were never reached'
      verdict=WRONG
    fi
  else
    outcome=$(why_not)
  fi
  line $verdict "$name" "$(num_states)" $(($(now_ms) - start)) "$outcome"
}

# Name, definitions: too many states to visit all; seconds of search in random order, with other seeds each time.
holds_as_far_as_seen() {
  [[ $1 =~ $pattern ]] || return 0
  local name=$1 start verdict=ok outcome='no fault seen, not all states' states=0 seed
  shift
  start=$(now_ms)
  if build "-O2 -DBITSTATE -DT_RAND -DP_RAND" "$@"; then
    for seed in 1 2; do
      timeout --signal=INT 7 ./pan -m100000 -w27 -RS$seed > pan.log 2>&1
      if ! grep -q 'errors: 0' pan.log; then
        verdict=WRONG
        outcome=$(why_not)
      fi
      states=$((states + $(num_states | awk '{ printf "%d", $1 }')))
    done
  else
    verdict=WRONG
    outcome=$(why_not)
  fi
  line $verdict "$name" $states $(($(now_ms) - start)) "$outcome"
}

# Name, what must be found (the name of an assertion, or "invalid end state": ranks that wait for ever), definitions.
fails() {
  [[ $1 =~ $pattern ]] || return 0
  local name=$1 expected=$2 start verdict=WRONG outcome
  shift 2
  start=$(now_ms)
  if build "-O1 -DCOLLAPSE" "$@" && timeout 600 ./pan -m100000 -w20 > pan.log 2>&1 &&
    grep -E '^pan:1: (assertion violated|invalid end state)' pan.log | grep -qw -- "$expected"; then
    outcome="found: $expected"
    verdict=ok
  else
    outcome="not found: $expected; instead: $(why_not)"
  fi
  line $verdict "$name" "$(num_states)" $(($(now_ms) - start)) "$outcome"
}

begin=$(now_ms)
printf '%-5s  %-74s %12s %8s    %s\n' '' run states time outcome
holds 'two ranks, 8 rounds' N=8
holds 'two ranks, 4 rounds, a view of the heap used until combine_send' N=4 VIEW_UNTIL_COMBINE_SEND
holds 'two ranks, 3 rounds, both halves in one kernel' N=3 FUSED
holds 'two ranks, 4 rounds to all ranks, puts land at any later time' N=4 WEAK ALL_RANKS
holds 'two ranks, 3 overlapped rounds, puts land at any later time' N=3 WEAK ONE_PLAN
holds 'two ranks, 4 rounds of 2 tokens' N=4 M=2 ONE_ORDER OTHER_RANKS
holds 'two ranks, two objects, 2 rounds each' N=2 OBJECTS=2 ONE_ORDER ALL_RANKS
holds 'two ranks, two objects, 3 rounds each, all combine' N=3 OBJECTS=2 ONE_ORDER ALL_RANKS ALWAYS_COMBINE
holds 'three ranks, 4 rounds to all ranks' N=4 W=3 ALL_RANKS
holds 'three ranks, 3 overlapped rounds to no, the next or all ranks' N=3 W=3 ONE_ORDER NONE_NEXT_OR_ALL ONE_PLAN
holds_as_far_as_seen 'three ranks, 4 rounds' N=4 W=3
holds 'two ranks, 3 rounds, ranks stop at any point, deadlines pass at any point' \
  N=3 ONE_ORDER OTHER_RANKS FAILURES STOPS
holds 'three ranks, 3 overlapped rounds, ranks stop and deadlines pass at any point' \
  N=3 W=3 ONE_ORDER ALL_RANKS ONE_PLAN FAILURES STOPS
holds 'three ranks, 2 rounds, only one has a deadline: its word ends the others' \
  N=2 W=3 ONE_ORDER ALL_RANKS FAILURES ONE_DEADLINE

fails 'one region instead of two' signal_beyond_epoch DEPTH=1
fails 'one region for results instead of two' signal_went_back RESULT_DEPTH=1
fails 'two objects in one region' signal_went_back OBJECTS=2 ALL_RANKS BROKEN_SHARED_REGION
fails 'signals without an epoch' counts_stale BROKEN_FLAG_WITHOUT_EPOCH
fails 'header before payload' payload_stale BROKEN_HEADER_BEFORE_PAYLOAD
fails 'counts taken for the signal of headers' header_stale BROKEN_COUNTS_AS_SIGNAL
fails 'counts sent before dispatch_recv of the round before' view_overwritten BROKEN_SEND_BEFORE_RECV
fails 'counts sent before combine_recv of two rounds before' signal_beyond_epoch BROKEN_SEND_BEFORE_COMBINE_RECV
fails 'a rank that never has tokens sends no counts, and nobody waits for them' view_overwritten BROKEN_SILENT_RANK
fails 'ranks without a token for a peer send it no counts' 'invalid end state' BROKEN_NO_COUNTS_WHEN_EMPTY
fails 'a view of the heap used after the next dispatch_send, in a round without combine' view_overwritten \
  BROKEN_VIEW_AFTER_SEND
fails 'the same calls, but in an order of their own on each rank' 'invalid end state' ALWAYS_COMBINE BROKEN_OWN_ORDER
fails 'a rank goes on after its deadline' signal_beyond_epoch FAILURES BROKEN_GO_ON_AFTER_DEADLINE
fails 'a rank that fails tells nobody' 'invalid end state' FAILURES ONE_DEADLINE BROKEN_NO_ABORT
fails 'a rank closes while its puts are in flight' closed_too_early N=2 WEAK ALL_RANKS BROKEN_CLOSES_EARLY

if [ $num_lines -eq 0 ]; then
  echo "no run matches '$pattern'"
  exit 1
fi
printf '%d runs, %d wrong, %d s\n' $num_lines $num_wrong $((($(now_ms) - begin) / 1000))
[ $num_wrong -eq 0 ]
