#!/bin/sh
# Builds moeway and runs a job of 8 ranks, every value checked: on this machine's GPUs if it has any and nvcc is there to
# build for them, else on its processors. `make demo` calls it.
#
#   tools/demo.sh [ARGUMENT OF moeway run...]     JOBS=2 and CMAKE_ARGS=... as for make
set -eu
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
cmake_arguments=${CMAKE_ARGS:-}

nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || [ ! -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
# "9.0" for each GPU, as CMake wants it: "90".
architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | sort -u | paste -sd ';' -) ||
  architectures=
case "$architectures" in *[!0-9\;]*) architectures= ;; esac  # A message, and no GPU.

if [ -n "$architectures" ] && [ -n "$nvcc" ]; then
  echo "demo: on the GPUs of this machine (built with $nvcc for architecture $architectures)"
  build=build/release-cuda device=cuda
  cmake_arguments="$cmake_arguments -DMOEWAY_CUDA=ON -DCMAKE_CUDA_COMPILER=$nvcc -DMOEWAY_CUDA_ARCHITECTURES=$architectures"
else
  if [ -n "$architectures" ]; then why="this machine has GPUs, but nvcc is neither in PATH nor below CUDA_HOME or /usr/local/cuda"
  else why="nvidia-smi finds no GPU here"; fi
  echo "demo: on the processors of this machine ($why)"
  build=build/release device=cpu
fi
# shellcheck disable=SC2086 # A list of words is meant.
cmake --preset release -B "$build" -DMOEWAY_BUILD_TESTS=OFF $cmake_arguments
cmake --build "$build" --target moeway_program -j "$jobs"
"$build/cli/moeway" run --ranks 8 --device "$device" "$@"
