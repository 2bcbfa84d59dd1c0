#!/bin/sh
# Builds the wheel as `pip install .` does, installs it into an empty environment, and runs the tests of the package there.
# Takes as long as a build of the library; pip must be able to get scikit-build-core, numpy and pytest.
#
#   tests/python/check_wheel.sh [PYTHON]
set -eu
cd "$(dirname "$0")/../.."
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/environment"
"$work/environment/bin/pip" wheel --quiet --no-deps --wheel-dir "$work/wheel" .
wheel=$(echo "$work"/wheel/moeway-*.whl)
case "$wheel" in
  *-py3-none-linux_*.whl) echo "$(basename "$wheel"), $(($(stat -c %s "$wheel") / 1024)) KiB" ;;
  *) echo "check_wheel: $wheel is not for every Python 3" >&2; exit 1 ;;
esac
"$work/environment/bin/pip" install --quiet "$wheel" pytest
cd "$work" # Away from the source tree.
"$work/environment/bin/python" -m moeway --version
MOEWAY_TEST_INSTALLED=1 "$work/environment/bin/python" -B -m pytest -q -rs -p no:cacheprovider "$OLDPWD/tests/python"
