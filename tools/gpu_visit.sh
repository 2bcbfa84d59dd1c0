#!/bin/bash
# A whole visit to a machine with GPUs: builds moeway, runs the GPU tests, checked jobs, the benchmark with plots of it, the
# comparison with other libraries and the compute sanitizer, and leaves few files behind. Nothing is fetched; every step has
# a time limit; a step that fails is named, and the others go on. Exit code 0 if every step that ran was right.
#
#   tools/gpu_visit.sh [OPTION...] [FOLDER]     FOLDER for the results: $OUT, else build/gpu-visit/results
#
#   --steps LIST      of build,tests,jobs,bench,compare,sanitizer [all, in this order]
#   --seconds N       begin no step after N seconds, and let none run longer than that [no limit]
#   --tokens LIST     [1,2,4,8,16,32,64,128,256,512,1024,2048,4096]
#   --dtypes LIST     [fp8,bf16]
#   --layouts LIST    [padded,packed,token-major]
#   --sets LIST       sets of inputs that take turns; the targets are for one, engines have many [1,8]
#   --sms LIST        multiprocessors that a call may take, besides all of them: the benchmark of the padded layout [16]
#   --ranks LIST      the benchmark is for each, everything else for the first [the number of GPUs; 2, which share it, where
#                     there is one]
#   --commit ID       what is measured [what git says, or MOEWAY_COMMIT]
#
# Environment: MOEWAY_DEPS_DIR, a folder with the libraries that the machine lacks (CONTRIBUTING.md); CMAKE_ARGS; JOBS;
# MOEWAY_NCCL, the NCCL to compare with. Results: steps.txt, machine.txt, visit.log, bench.json (a list of what `moeway bench
# --json` gives), latency_<dtype>.svg, compare_<dtype>.json and .svg, doctor.json, summary.txt.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

steps=build,tests,jobs,bench,compare,sanitizer seconds=0 out=${OUT:-build/gpu-visit/results} ranks=
tokens=1,2,4,8,16,32,64,128,256,512,1024,2048,4096 dtypes=fp8,bf16 layouts=padded,packed,token-major sets=1,8 sms=16
commit=${MOEWAY_COMMIT:-$(git describe --always --dirty 2>/dev/null || true)}
usage() { echo "gpu_visit: $1" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --steps | --seconds | --tokens | --dtypes | --layouts | --sets | --sms | --ranks | --commit)
      [ $# -ge 2 ] || usage "$1: expected a value"
      declare "${1#--}=$2"; shift 2 ;;
    --help) sed -n '2,/^set/{s/^# \{0,1\}//;/^set/d;p}' "$0"; exit 0 ;;
    -*) usage "$1: expected --steps, --seconds, --tokens, --dtypes, --layouts, --sets, --sms, --ranks or --commit" ;;
    *) out=$1; shift ;;
  esac
done
case ",$steps," in *[!a-z,]*) usage "--steps: '$steps', expected names separated by commas" ;; esac
for name in ${steps//,/ }; do
  case "$name" in build | tests | jobs | bench | compare | sanitizer) ;;
    *) usage "--steps: '$name', expected build, tests, jobs, bench, compare or sanitizer" ;;
  esac
done
for list in "--sms $sms" "--ranks $ranks"; do
  case "${list#* }" in *[!0-9,]*) usage "${list%% *}: '${list#* }', expected numbers separated by commas" ;; esac
done
case "$seconds" in '' | *[!0-9]*) usage "--seconds: '$seconds', expected a whole number" ;; esac

mkdir -p "$out" build/gpu-visit/bench || exit 2
out=$(cd "$out" && pwd)
test_programs=(kernels_cuda_test gpu_test gpu_input_test gpu_processes_test issues_gpu_test)
build=build/gpu-visit moeway=build/gpu-visit/cli/moeway log=$out/visit.log failed=0
: >"$log"
: >"$out/steps.txt"
export LC_ALL=C.UTF-8
# Send and receive, which is what is compared with, does not use NVLink multicast; it stays off unless asked for.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

wanted() { case ",$steps," in *",$1,"*) true ;; *) false ;; esac; }

# note RESULT SECONDS NAME
note() { printf '%-10s %5s s  %s\n' "$1" "$2" "$3" | tee -a "$out/steps.txt"; }

# step NAME LIMIT_S COMMAND...: runs it, its output to the log; the last lines of a failure are shown.
step() {
  local name=$1 limit=$2 begin=$SECONDS status=0
  shift 2
  if [ "$seconds" -gt 0 ]; then
    local left=$((seconds - SECONDS))
    if [ "$left" -lt 5 ]; then note "NOT RUN" 0 "$name: no time left"; failed=1; return 1; fi
    [ "$limit" -le "$left" ] || limit=$left
  fi
  { echo; echo "==== $name: $*"; } >>"$log"
  local from; from=$(wc -c <"$log")
  timeout --kill-after=10 "$limit" "$@" >>"$log" 2>&1 </dev/null || status=$?
  case "$status" in
    0) note ok $((SECONDS - begin)) "$name"; return 0 ;;
    124 | 137) note "TIMED OUT" $((SECONDS - begin)) "$name (limit $limit s)" ;;
    *) note FAILED $((SECONDS - begin)) "$name (exit code $status)" ;;
  esac
  tail -c "+$((from + 1))" "$log" | tail -n 15 | sed 's/^/    /'
  failed=1
  return 1
}

build_all() {
  local arguments=(-S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DMOEWAY_CUDA=ON -DMOEWAY_BUILD_EXAMPLES=OFF
    "-DMOEWAY_DEPS_DIR=${MOEWAY_DEPS_DIR:-}") targets=() words
  command -v ninja >/dev/null && arguments+=(-G Ninja)
  read -ra words <<<"${CMAKE_ARGS:-}"
  if step "configure" 120 cmake "${arguments[@]}" -DMOEWAY_BUILD_TESTS=ON "${words[@]}"; then
    targets=(moeway_program "${test_programs[@]}")
  elif step "configure without tests" 120 cmake "${arguments[@]}" -DMOEWAY_BUILD_TESTS=OFF "${words[@]}"; then
    targets=(moeway_program)  # Without GoogleTest, for one: what can be had is had.
  fi
  [ ${#targets[@]} = 0 ] ||
    step "build ${targets[*]}" 900 cmake --build "$build" -j "${JOBS:-$(nproc)}" --target "${targets[@]}"
}

machine_facts() {
  nvidia-smi -L
  nvidia-smi --query-gpu=driver_version,compute_cap,memory.total,clocks.max.sm --format=csv
  nvidia-smi topo -m
  "$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")" --version
  uname -srm
  nproc
}

# The NCCL of MOEWAY_NCCL, else the loader's, else the one that PyTorch brought.
find_nccl() {
  [ -z "${MOEWAY_NCCL:-}" ] || { echo "$MOEWAY_NCCL"; return; }
  if [ "$(ldconfig -p 2>/dev/null | grep -c 'libnccl\.so\.2')" != 0 ]; then echo libnccl.so.2; return; fi
  local file
  for file in /usr/local/cuda/lib*/libnccl.so.2 \
    "$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null)/lib/libnccl.so.2"; do
    [ -e "$file" ] && { echo "$file"; return; }
  done
  echo libnccl.so.2
}

checked_jobs() {
  local job="$moeway run --device cuda --quiet --rounds 9 --timeout-ms 10000 --experts 24 --topk 4 --hidden 1000 --tokens 37 --ragged"
  step "doctor" 60 "$moeway" doctor --json "$out/doctor.json"
  local form
  for form in "" "--dtype fp8 --layout packed --alignment 16" "--dtype f32 --layout token-major" \
    "--dtype bytes --weights combine" "--dtype f16 --out-dtype f32" "--dtype fp8-ue8m0 --hidden 7168 --tokens 64"; do
    case "$form" in *--hidden*) job="$moeway run --device cuda --quiet --rounds 6 --timeout-ms 10000" ;; esac
    # shellcheck disable=SC2086 # Lists of words are meant.
    step "run, $ranks ranks $form" 90 $job --ranks "$ranks" $form
  done
  step "run, several ranks on a GPU" 90 "$moeway" run --device cuda --quiet --rounds 6 --ranks $((2 * ranks)) --hidden 512 --timeout-ms 10000
}

has_torch() { python3 -c 'import torch, pytest' 2>/dev/null; }

# A test program passes with tests that it has left out: they are named, and a program that left out all of them has not run.
tested() {
  local program=$1 name=$1 limit=$2 from lacking
  shift 2
  [ $# = 0 ] || name="$program $*"
  from=$(wc -c <"$log")
  step "$name" "$limit" "$build/tests/$program" "$@" || true
  lacking=$(tail -c "+$((from + 1))" "$log" | grep -m 1 '^needs [0-9]* CUDA devices')
  if [ -n "$lacking" ]; then note "NOT RUN" 0 "$name: $lacking"; failed=1; fi
  tail -c "+$((from + 1))" "$log" | grep -o '^\[  SKIPPED \] [A-Za-z_/0-9.]*$' | sort -u | sed 's/^/    /'
}

all_tests() {
  tested kernels_cuda_test 180
  tested gpu_test 400
  tested issues_gpu_test 600
  tested gpu_input_test 120
  tested gpu_processes_test 300
  # A new process for each rank of each job takes seconds: what differs most between processes and threads.
  MOEWAY_GPU_RANKS_AS=processes tested issues_gpu_test 300 \
    --gtest_filter='EmptyRanks.ARankThatNeither*:MissingCall.TheRank*:MissingCall.AProcess*:RoundCounter.*Processes'
  if has_torch; then
    MOEWAY_LIBRARY=$PWD/$build/libmoeway.so CUDA_MODULE_LOADING=EAGER step "python tests" 400 tests/python/run_gpu.sh
  else
    note SKIPPED 0 "python tests: torch or pytest is missing"
  fi
}

# One rank on a GPU, a process each: the sanitizer lets no two kernels of a device run at a time, and ours wait for each other.
# All kernels are loaded at once: one that is loaded while another waits would wait for that.
sanitized() {
  local tool=$1 tokens_=$2 hidden=$3 form=$4
  # shellcheck disable=SC2086 # A list of words is meant.
  CUDA_MODULE_LOADING=EAGER step "$tool $form" 240 \
    compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 3 --print-limit 5 \
    "$moeway" run --device cuda --ranks "$gpus" --ranks-as processes --rounds 3 --experts 8 --topk 2 \
    --tokens "$tokens_" --hidden "$hidden" --timeout-ms 100000 $form
}

all_sanitized() {
  local form
  for form in "--dtype bf16" "--dtype fp8 --layout token-major" "--dtype bytes --weights combine --layout packed"; do
    sanitized memcheck 16 512 "$form"
    sanitized racecheck 4 128 "$form"
    sanitized synccheck 4 128 "$form"
  done
}

plots() {
  local dtype
  for dtype in ${dtypes//,/ }; do
    step "plot $dtype" 60 python3 tools/plot_latency.py --dtype "$dtype" --output "$out/latency_$dtype.svg" "$out/bench.json"
  done
}

# bench NAME ARGUMENT...: after a failure what it has written counts all the same.
num_benches=0
bench() {
  local file name="bench $1"
  num_benches=$((num_benches + 1))
  file=$(printf 'build/gpu-visit/bench/%02d-%s.json' $num_benches "$1")  # In this order in the result.
  shift
  step "$name" 280 "$moeway" bench --device cuda --ranks "$bench_ranks" --timeout-ms 10000 --nccl "$nccl" --commit "$commit" \
    --json "$file" "$@"
  python3 tools/bench_results.py merge "$out/bench.json" build/gpu-visit/bench/*.json >>"$log" 2>&1
}

# All benches of one number of ranks, whose names begin with $1.
benchmarks_of() {
  local prefix=$1 count layout budget extra=() first=1
  for count in ${sets//,/ }; do
    for layout in ${layouts//,/ }; do
      extra=(--no-baselines)
      [ $first = 1 ] && extra=()  # They do not depend on layout or sets: once is enough.
      first=0
      bench "$prefix$layout-sets$count" --tokens "$tokens" --dtype "$dtypes" --layout "$layout" --sets "$count" "${extra[@]}"
    done
  done
  count=${sets%%,*}
  for budget in ${sms//,/ }; do
    bench "${prefix}sms$budget-sets$count" --tokens "$tokens" --dtype "$dtypes" --sets "$count" --sms "$budget" --no-baselines
  done
  bench "${prefix}split-sets$count" --tokens "$tokens" --dtype "$dtypes" --sets "$count" --split --no-baselines
  bench "${prefix}weights-at-combine-sets$count" --tokens "$tokens" --dtype "$dtypes" --sets "$count" --weights combine --no-baselines
  bench "${prefix}quantised-sets$count" --tokens "$tokens" --dtype bf16-to-fp8 --sets "$count" --no-baselines
  bench "${prefix}bytes-sets$count" --tokens "$tokens" --dtype bytes --token-bytes 7392 --scale-bytes 0 --sets "$count" --no-baselines
}

benchmarks() {
  nccl=$(find_nccl)
  rm -f build/gpu-visit/bench/*.json
  for bench_ranks in ${all_ranks//,/ }; do
    local prefix=
    [ "$bench_ranks" = "$ranks" ] || prefix=ranks$bench_ranks-
    benchmarks_of "$prefix"
  done
}

# moeway and whatever else is installed, through Python. Inputs as bench/compare has them.
comparisons() {
  local dtype
  for dtype in bf16 fp8 bf16-to-fp8; do
    MOEWAY_LIBRARY=$PWD/$build/libmoeway.so CUDA_MODULE_LOADING=EAGER step "compare $dtype" 600 \
      python3 bench/compare/compare.py --ranks "$ranks" --tokens 1,8,32,128 --dtype "$dtype" --limit 60 \
      --json "$out/compare_$dtype.json" --plot "$out/compare_$dtype.svg"
  done
}

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
all_ranks=${ranks:-$((gpus > 1 ? gpus : 2))}
ranks=${all_ranks%%,*}
if wanted build; then build_all; fi
machine_facts >"$out/machine.txt" 2>&1
if [ "$gpus" = 0 ]; then
  note FAILED 0 "nvidia-smi finds no GPU: nothing but the build can be done here"
  failed=1 steps=
elif [ ! -x "$moeway" ]; then
  note FAILED 0 "$moeway is missing: build it first"
  failed=1 steps=
fi
if wanted tests; then all_tests; fi
if wanted jobs; then checked_jobs; fi
if wanted bench; then benchmarks; plots; fi
if wanted compare; then
  if ! has_torch; then note SKIPPED 0 "compare: torch or pytest is missing"
  elif [ "$gpus" -lt "$ranks" ]; then note SKIPPED 0 "compare: other libraries want a GPU for each rank"
  else comparisons; fi
fi
# Last: it is slow, and not every machine lets it run.
if wanted sanitizer; then
  if command -v compute-sanitizer >/dev/null; then
    all_sanitized
  else
    note "NOT RUN" 0 "compute-sanitizer is not in PATH"
    failed=1
  fi
fi
{
  echo "commit $commit, $gpus GPUs, $ranks ranks"
  cat "$out/steps.txt"
  [ ! -f "$out/bench.json" ] || python3 tools/bench_results.py table "$out/bench.json"
} >"$out/summary.txt" 2>&1
echo
cat "$out/summary.txt"
exit $failed
