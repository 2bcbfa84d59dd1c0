"""Fails if a test suite ran nothing: skipping everything must not look like success.

usage: check_suites.py SUITES RESULTS

SUITES has one suite name per line (cmake/tests.cmake writes it), RESULTS is ctest's JUnit file. A test belongs to the
suite whose name stands in front of its first dot. Skipped tests are printed with their reason, also those that pytest
skipped within a file.
"""

import collections
import re
import sys
import xml.etree.ElementTree


def pytest_reasons(case):
    """What pytest -rs says of tests that it skipped within a file."""
    return re.findall(r"^SKIPPED \[\d+\] (?:\S+: )?(.*)$", case.findtext("system-out") or "", re.M)


def reason_of(case):
    """The text that a test gave for skipping, as far as its output shows one."""
    output = case.findtext("system-out") or ""
    match = re.search(r"Skipped\n(.*?)\n(?:\[|$)", output, re.S)
    if match:
        return " ".join(match.group(1).split())
    return "; ".join(pytest_reasons(case)) or "no reason given"


def check(suites, results):
    """Returns (report lines, names of the suites that ran nothing)."""
    ran = collections.Counter()
    skipped = {}
    parts = []
    for case in xml.etree.ElementTree.parse(results).getroot().iter("testcase"):
        name = case.get("name")
        if case.get("status") in ("run", "fail"):
            ran[name.split(".")[0]] += 1
            parts += [f"skipped in {name}: {reason}" for reason in pytest_reasons(case)]
        else:
            skipped[name] = reason_of(case)
    lines = [f"skipped: {name}: {reason}" for name, reason in sorted(skipped.items())] + sorted(parts)
    empty = [suite for suite in suites if ran[suite] == 0]
    lines += [f"suite {suite}: no test ran" for suite in empty]
    return lines, empty


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        suites = file.read().split()
    lines, empty = check(suites, sys.argv[2])
    for line in lines:
        print(line)
    return 1 if empty or not suites else 0


if __name__ == "__main__":
    sys.exit(main())
