#!/bin/sh
# Runs clang-tidy over src and cli as a configured build folder compiles them, with more checks than .clang-tidy names if
# some are given.
#
#   tools/tidy.sh BUILD_FOLDER [CHECKS [PATH_PATTERN]]
#
# Where the build compiles several files as one (preset tidy), so does clang-tidy, which then reads their headers once.
set -eu
cd "$(dirname "$0")/.."
build=$1
checks=${2:-}
pattern=${3:-}

if [ ! -f "$build/compile_commands.json" ]; then
  echo "tidy: $build/compile_commands.json is missing; configure first" >&2
  exit 2
fi
files=$(python3 - "$build/compile_commands.json" "$pattern" <<'PYTHON'
import json, os, re, sys
root = os.getcwd()
for entry in json.load(open(sys.argv[1], encoding="utf-8")):
    name = os.path.relpath(entry["file"], root)
    checked = [name]
    if "/Unity/" in name:
        with open(entry["file"], encoding="utf-8") as unity:
            checked = [os.path.relpath(path, root) for path in re.findall(r'#include "(.+)"', unity.read())]
    if any(path.startswith(("src/", "cli/")) and path.endswith(".cc") and sys.argv[2] in path for path in checked):
        print(name)
PYTHON
)
if [ -z "$files" ]; then
  echo "tidy: no file of src or cli in $build/compile_commands.json matches '$pattern'" >&2
  exit 2
fi
status=0
# One file that takes for ever must not take everything with it.
echo "$files" | sort -u |
  xargs -n 1 -P 2 timeout 600 clang-tidy --quiet -p "$build" --checks="$checks" >"$build/tidy.log" 2>&1 || status=$?
grep -v -E '^[0-9]+ warnings?( and [0-9]+ errors?)? generated|^Suppressed|^Use -header-filter' "$build/tidy.log" || true
if [ "$status" != 0 ]; then
  echo "tidy: findings, or a file that took more than 600 s" >&2
  exit 1
fi
echo "tidy: nothing to report in $(echo "$files" | wc -l) compilations"
