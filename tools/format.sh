#!/bin/sh
# Formats the C, C++ and CUDA files with clang-format 14; other versions break lines elsewhere.
#
#   tools/format.sh check    names the files that would change, and fails if there are any
#   tools/format.sh fix      changes them
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
  check) action='--dry-run --Werror' ;;
  fix) action=-i ;;
  *) echo "usage: tools/format.sh check|fix" >&2; exit 2 ;;
esac

# Not `git ls-files`: a file is formatted before it is known to git, and a copy without .git is formatted too.
# shellcheck disable=SC2086 # Words are meant.
find include src cli bench examples tests bindings -type f \
  \( -name '*.h' -o -name '*.c' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) -print0 2>/dev/null |
  xargs -0 -r -n 64 clang-format-14 --style=file $action
