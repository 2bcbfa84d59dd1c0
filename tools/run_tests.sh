#!/bin/sh
# Runs the tests of one preset and fails if one failed, or if a suite ran nothing.
#
#   tools/run_tests.sh PRESET [JOBS [CTEST_ARGUMENT...]]
set -eu
cd "$(dirname "$0")/.."
preset=$1
jobs=${2:-$(nproc)}
if [ $# -gt 2 ]; then shift 2; else shift $#; fi

# ThreadSanitizer expects the addresses that older kernels chose; where the kernel spreads them more widely, programs
# end at start-up. Fixed addresses avoid that. Some containers forbid the call, and then it is not needed or not helped.
fixed_addresses=
if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
  fixed_addresses="setarch $(uname -m) -R"
fi

results=build/$preset/test_results.xml
rm -f "$results"
$fixed_addresses ctest --preset "$preset" -j "$jobs" --output-junit "$PWD/$results" "$@" </dev/null || failed=$?
python3 tools/check_suites.py "build/$preset/suites.txt" "$results"
exit "${failed:-0}"
