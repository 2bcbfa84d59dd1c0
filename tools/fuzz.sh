#!/bin/sh
# Runs the fuzz targets of a build, each for some seconds, and fails if one has found something. What it found lies then in
# BUILD/fuzz/findings: bring it into tests/fuzz/corpus with the change that mends it. Inputs that reach new code are kept in
# BUILD/fuzz/corpus for the next run.
#
#   tools/fuzz.sh BUILD_FOLDER SECONDS [JOBS [TARGET...]]
set -eu
cd "$(dirname "$0")/.."
build=$1
seconds=$2
jobs=${3:-$(nproc)}
if [ $# -gt 3 ]; then shift 3; else shift $#; fi

targets=$*
if [ -z "$targets" ]; then
  targets=$(cd tests/fuzz && printf '%s\n' *_target.cc | sed 's/_target\.cc$//')
fi
rm -rf "$build/fuzz/findings"
mkdir -p "$build/fuzz/findings" "$build/fuzz/logs"
for target in $targets; do mkdir -p "$build/fuzz/corpus/$target" "tests/fuzz/corpus/$target"; done

# A hang is a finding: no input takes a second, but a busy machine may stop a program for some.
status=0
# shellcheck disable=SC2016 # The inner shell puts in its own arguments.
echo "$targets" | tr ' ' '\n' | xargs -I '{}' -P "$jobs" sh -c '
  "$1/fuzz/fuzz_$2" -max_total_time="$3" -timeout=60 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="$1/fuzz/findings/$2-" "$1/fuzz/corpus/$2" "tests/fuzz/corpus/$2" >"$1/fuzz/logs/$2.log" 2>&1 ||
    { echo "fuzz: $2 has found something:"; tail -n 40 "$1/fuzz/logs/$2.log"; exit 1; }
' fuzz "$build" '{}' "$seconds" || status=1
for target in $targets; do
  echo "fuzz: $target: $(grep -h -o -E 'number_of_executed_units: [0-9]+' "$build/fuzz/logs/$target.log" || echo "did not end")"
done
exit "$status"
