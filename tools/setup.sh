#!/bin/sh
# Finds what this machine lacks for building moeway and installs it with apt-get (Debian 12, Ubuntu 24.04).
#
#   tools/setup.sh [GROUP...]     groups: build (default), test, fuzz, lint, model, bench, all
#
# What is looked for is the program or header itself, not the package, so a machine that has it from elsewhere needs
# nothing. Where something is missing, root or sudo is needed; without them the command to run is printed, and the
# script fails.
set -eu

# group, package, kind of evidence (a program, a C++ header, libFuzzer, modules that one
# Python has together), evidence
wanted='
build g++ program g++
build make program make
build cmake program cmake
build ninja-build program ninja
build libfmt-dev header fmt/format.h
build libcli11-dev header CLI/CLI.hpp
build nlohmann-json3-dev header nlohmann/json.hpp
test python3 program python3
test libgtest-dev header gtest/gtest.h
test libgmock-dev header gmock/gmock.h
test librapidcheck-dev header rapidcheck.h
test python3-numpy modules numpy,pytest
test python3-pytest modules numpy,pytest
fuzz clang program clang++
fuzz libclang-rt-dev fuzzer clang++
lint python3 program python3
lint clang-format-14 program clang-format-14
lint clang-tidy program clang-tidy
lint shellcheck program shellcheck
model spin program spin
bench libopenmpi-dev program mpicxx
bench openmpi-bin program mpirun
bench libbenchmark-dev header benchmark/benchmark.h
'

groups="${*:-build}"
for group in $groups; do
  case "$group" in
    build | test | fuzz | lint | model | bench | all) ;;
    *) echo "setup: unknown group '$group', expected build, test, fuzz, lint, model, bench or all" >&2; exit 2 ;;
  esac
done

is_there() {
  case "$1" in
    program) command -v "$2" >/dev/null 2>&1 ;;
    # The debug and release headers of a library come together, so that finding it by the preprocessor is enough.
    header) echo "#include <$2>" | g++ -std=c++20 -fsyntax-only -x c++ -M - >/dev/null 2>&1 ;;
    # The library that -fsanitize=fuzzer links is a package of its own in newer systems.
    fuzzer)
      echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
        "$2" -fsanitize=fuzzer,address -x c++ - -o /dev/null >/dev/null 2>&1 ;;
    # The first python3 may not be the one that packages are for; cmake/python_tests.cmake looks at both, too.
    modules)
      for python in python3 /usr/bin/python3; do
        if "$python" -c "import $2" >/dev/null 2>&1; then return 0; fi
      done
      return 1 ;;
  esac
}

# Prints the packages whose evidence is missing. Everything of group "build" is needed for all other groups too.
missing() {
  echo "$wanted" | while read -r group package kind evidence; do
    [ -n "$group" ] || continue
    case " build $groups " in
      *" all "* | *" $group "*) is_there "$kind" "$evidence" || echo "$package" ;;
    esac
  done | sort -u
}

packages=$(missing | tr '\n' ' ')
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "setup: missing here: $packages(Debian's names). There is no apt-get; please install them." >&2
  exit 1
fi

install="apt-get -o Acquire::Retries=3 install --yes --no-install-recommends $packages"
if [ "$(id -u)" = 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
  as_root=sudo
else
  echo "setup: missing here: $packages" >&2
  echo "setup: neither root nor sudo. Please have this run, then try again:" >&2
  echo "  apt-get update && $install" >&2
  exit 1
fi

echo "setup: installing with apt-get: $packages"
# shellcheck disable=SC2086 # A list of words is meant.
$as_root apt-get -o Acquire::Retries=3 -qq update </dev/null
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive $install </dev/null

packages=$(missing | tr '\n' ' ')
if [ -n "$packages" ]; then
  echo "setup: installed, but still not to be found: $packages" >&2
  exit 1
fi
