#!/usr/bin/env python3
"""Takes one release, acquire or epoch check out of the kernels at a time: a named test must then fail.

usage: mutation_check.py --build BUILD [--only WORDS]

BUILD is a configured build folder with the kernel tests built under ThreadSanitizer (preset tsan), which sees a missing
order even where this processor would not show it. The source tree is not touched: the changed file lies in a temporary
folder that is searched first. tests/kernels/mutations.json says what is taken out and which test must fail.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "kernels_host_test"
LIMIT_S = 240  # A mutant may hang: that is a failure of its test as well.


def mutated(mutation):
    """The text of the file with the first `find` behind `after` replaced; it must be there."""
    text = (ROOT / mutation["file"]).read_text()
    start = text.find(mutation["after"])
    at = text.find(mutation["find"], start) if start >= 0 else -1
    if at < 0:
        sys.exit(f"mutation_check: {mutation['name']}: {mutation['file']} no longer has {mutation['find']!r} "
                 f"behind {mutation['after']!r}")
    return text[:at] + mutation["replace"] + text[at + len(mutation["find"]):]


def compile_command(build, source_name):
    """How the build compiles src/launch/<source_name>, as a list, and its folder."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith("/src/launch/" + source_name):
            return shlex.split(entry["command"]), entry["directory"]
    sys.exit(f"mutation_check: {build}/compile_commands.json does not compile src/launch/{source_name}")


def link_command(build):
    lines = subprocess.run(["ninja", "-C", str(build), "-t", "commands", TARGET], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    for line in reversed(lines):
        words = shlex.split(line)
        if any(word.endswith(f"tests/{TARGET}") for word in words):
            while words and not words[0].endswith(("g++", "c++", "clang++")):  # "cd folder && :" in front of it.
                words.pop(0)
            while "&&" in words:
                words = words[:words.index("&&")]
            return words
    sys.exit(f"mutation_check: no link command of {TARGET} in {build}")


def build_mutant(build, mutation, folder):
    """The test program with one changed object, put before the archive that holds the unchanged one."""
    header = folder / mutation["file"]
    header.parent.mkdir(parents=True)
    header.write_text(mutated(mutation))
    command, directory = compile_command(build, mutation["object"])
    object_file = folder / "mutant.o"
    command[command.index("-o") + 1] = str(object_file)
    command = [word for word in command if not word.startswith("-Werror")]
    command.insert(1, f"-I{folder}/src")
    subprocess.run(command, check=True, cwd=directory)
    link = link_command(build)
    program = folder / TARGET
    link[link.index("-o") + 1] = str(program)
    link.insert(1, str(object_file))
    subprocess.run(link, check=True, cwd=build)
    return program


def test_fails(program, test):
    environment = dict(os.environ, TSAN_OPTIONS="halt_on_error=1")
    try:
        run = subprocess.run([str(program), f"--gtest_filter={test}"], env=environment, timeout=LIMIT_S,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except subprocess.TimeoutExpired:
        return True
    if "[==========] Running 0 tests" in run.stdout:
        sys.exit(f"mutation_check: no test is called {test}")
    return run.returncode != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", help="mutations whose name contains these words")
    options = parser.parse_args()
    build = options.build.resolve()
    mutations = [m for m in json.loads((ROOT / "tests/kernels/mutations.json").read_text())["mutations"]
                 if options.only in m["name"]]
    # A test that fails by itself would catch anything.
    for test in sorted({mutation["test"] for mutation in mutations}):
        if test_fails(build / "tests" / TARGET, test):
            sys.exit(f"mutation_check: {test} fails with nothing taken out")
    survivors = []
    for mutation in mutations:
        with tempfile.TemporaryDirectory(prefix="moeway-mutant-") as folder:
            program = build_mutant(build, mutation, pathlib.Path(folder))
            caught = test_fails(program, mutation["test"])
        print(f"{'caught' if caught else 'SURVIVED'}: {mutation['name']} ({mutation['test']})", flush=True)
        if not caught:
            survivors.append(mutation["name"])
    print(f"{len(mutations) - len(survivors)} passed, {len(survivors)} failed")
    return 1 if survivors or not mutations else 0


if __name__ == "__main__":
    sys.exit(main())
