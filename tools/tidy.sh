#!/bin/sh
# Runs clang-tidy over src and cli as a configured build folder compiles them.
#
#   tools/tidy.sh BUILD_FOLDER [PATH_PATTERN]
set -eu
cd "$(dirname "$0")/.."
build=$1
pattern=${2:-}

if [ ! -f "$build/compile_commands.json" ]; then
  echo "tidy: $build/compile_commands.json is missing; configure first" >&2
  exit 2
fi
files=$(python3 - "$build/compile_commands.json" "$pattern" <<'PYTHON'
import json, os, sys
root = os.getcwd()
for entry in json.load(open(sys.argv[1], encoding="utf-8")):
    name = os.path.relpath(entry["file"], root)
    if name.startswith(("src/", "cli/")) and name.endswith(".cc") and sys.argv[2] in name:
        print(name)
PYTHON
)
if [ -z "$files" ]; then
  echo "tidy: no file of src or cli in $build/compile_commands.json matches '$pattern'" >&2
  exit 2
fi
status=0
# One file that takes for ever must not take everything with it.
echo "$files" | sort -u | xargs -n 1 -P 2 timeout 300 clang-tidy --quiet -p "$build" >"$build/tidy.log" 2>&1 || status=$?
grep -v -E '^[0-9]+ warnings?( and [0-9]+ errors?)? generated|^Suppressed|^Use -header-filter' "$build/tidy.log" || true
if [ "$status" != 0 ]; then
  echo "tidy: findings, or a file that took more than 300 s" >&2
  exit 1
fi
echo "tidy: nothing to report in $(echo "$files" | wc -l) files"
