#!/usr/bin/env bash
# Runs bench/host_round_mpi for 2, 4 and 8 ranks on this machine and keeps the figures in
# bench/results/host_round_<machine>.json. With more ranks than processors the ranks take turns, so times mean nothing
# and ratios little; run it on a machine that does nothing else.
# usage: bench/run_host.sh [build folder]      default build/release, made by `make bench`
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/release}/bench/host_round_mpi
if [ ! -x "$program" ]; then
  echo "run_host: $program is not there: 'make bench' builds it (needs MPI)" >&2
  exit 1
fi

processors=$(nproc)
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr '[:upper:]' '[:lower:]' |
  sed 's/([a-z]*)//g; s/[^a-z0-9]\+/-/g; s/^-//; s/-$//')
result=bench/results/host_round_${machine:-unknown}_x$processors.json
commit=$(git describe --always --dirty 2> /dev/null || echo unknown)
load=$(cut -d ' ' -f 1 /proc/loadavg)
note="commit $commit, load $load before"

launch=(mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1)
if [ "$(id -u)" = 0 ]; then launch+=(--allow-run-as-root); fi

work=$(mktemp -d "${TMPDIR:-/tmp}/moeway-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "machine: $machine, $processors processors; load $load (more than a few tenths spoils the figures)"
for tokens in 128 8; do
  for ranks in 2 4 8; do
    [ "$ranks" -le "$processors" ] || echo "$ranks ranks on $processors processors: they take turns, mind the ratios only"
    timeout 600 "${launch[@]}" -n "$ranks" "$program" --tokens "$tokens" --iterations 100 --note "$note" \
      --json "$work/$tokens-$ranks.json"
  done
done

mkdir -p bench/results
{
  echo '['
  first=1
  for tokens in 128 8; do
    for ranks in 2 4 8; do
      [ $first = 1 ] || echo ','
      first=0
      cat "$work/$tokens-$ranks.json"
    done
  done
  echo ']'
} > "$result"
echo "written: $result"
