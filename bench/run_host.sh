#!/usr/bin/env bash
# Runs bench/host_round_mpi for 2, 4 and 8 ranks on this machine and keeps the figures in
# bench/results/host_round_<machine>.json. With more ranks than processors the ranks take turns, so times mean nothing
# and ratios little. Waits for a quiet machine before each run, and records how much others used during it.
# usage: bench/run_host.sh [build folder]      default build/release, made by `make bench`
#   PATIENCE=60       seconds to wait for a quiet machine before each run; then it runs all the same
#   ITERATIONS=100
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/release}/bench/host_round_mpi
patience=${PATIENCE:-60}
if [ ! -x "$program" ]; then
  echo "run_host: $program is not there: 'make bench' builds it (needs MPI)" >&2
  exit 1
fi

processors=$(nproc)
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr '[:upper:]' '[:lower:]' |
  sed 's/([a-z]*)//g; s/[^a-z0-9]\+/-/g; s/^-//; s/-$//')
result=bench/results/host_round_${machine:-unknown}_x$processors.json
note="commit $(git rev-parse --short HEAD 2> /dev/null || echo unknown)"
if [ -n "$(git status --porcelain -- . ':!bench/results' 2> /dev/null)" ]; then note+=" with changes"; fi
launch=(mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1)
if [ "$(id -u)" = 0 ]; then launch+=(--allow-run-as-root); fi

work=$(mktemp -d "${TMPDIR:-/tmp}/moeway-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Hundredths of seconds that all processors together have worked.
worked() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }
# The same, for this script's children that have ended.
worked_for_us() { awk '{ print $16 + $17 }' "/proc/$$/stat"; }

# Until nearly nothing has run for three seconds.
wait_for_quiet() {
  local end=$((SECONDS + patience)) before
  while [ $SECONDS -lt $end ]; do
    before=$(worked)
    sleep 3
    [ $(($(worked) - before)) -gt $((processors * 15)) ] || return 0
  done
  echo "the machine is not quiet; these figures are disturbed" >&2
}

outputs=()
for tokens in 128 8; do
  for ranks in 2 4 8; do
    [ "$ranks" -le "$processors" ] || echo "$ranks ranks on $processors processors take turns: mind the ratios only"
    wait_for_quiet
    all=$(worked)
    own=$(worked_for_us)
    start=$(date +%s%N)
    timeout 600 "${launch[@]}" -n "$ranks" "$program" --tokens "$tokens" --iterations "${ITERATIONS:-100}" \
      --note "$note" --json "$work/run.json"
    available=$((($(date +%s%N) - start) * processors / 10000000))
    own=$(($(worked_for_us) - own))
    others=$(((($(worked) - all) - own) * 100 / (available + 1)))
    echo "others used $others % of the processors"
    printf '{"others_used_percent": %d, "run":\n' "$others" > "$work/$tokens-$ranks.json"
    cat "$work/run.json" >> "$work/$tokens-$ranks.json"
    echo '}' >> "$work/$tokens-$ranks.json"
    outputs+=("$work/$tokens-$ranks.json")
  done
done

mkdir -p bench/results
{
  echo '['
  cat "${outputs[0]}"
  for output in "${outputs[@]:1}"; do
    echo ','
    cat "$output"
  done
  echo ']'
} > "$result"
echo "written: $result"
