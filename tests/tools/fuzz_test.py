"""tools/fuzz.sh runs targets for the time it is given, on their corpora, and fails if one has found something."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Stands for a target: shows how it was called, and ends as its name says.
PROGRAM = """#!/bin/sh
echo "called with $*"
case $0 in *frame) echo "broken: a rule"; exit 77;; esac
echo "stat::number_of_executed_units: 42"
"""


class Fuzz(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.build = pathlib.Path(self.folder.name)
        (self.build / "fuzz").mkdir()
        for name in ("frame", "route_file"):
            program = self.build / "fuzz" / f"fuzz_{name}"
            program.write_text(PROGRAM, encoding="utf-8")
            program.chmod(0o755)

    def run_targets(self, *targets):
        return subprocess.run([ROOT / "tools" / "fuzz.sh", self.build, "7", "2", *targets], capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)

    def test_runs_a_target_for_its_time_on_its_corpus(self):
        done = self.run_targets("route_file")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "fuzz: route_file: number_of_executed_units: 42\n")
        log = (self.build / "fuzz" / "logs" / "route_file.log").read_text(encoding="utf-8")
        self.assertIn("-max_total_time=7 ", log)
        self.assertIn(f"{self.build}/fuzz/corpus/route_file tests/fuzz/corpus/route_file", log)
        self.assertEqual(os.listdir(self.build / "fuzz" / "findings"), [])

    def test_a_finding_fails_and_is_shown(self):
        done = self.run_targets("frame", "route_file")
        self.assertEqual(done.returncode, 1)
        self.assertIn("fuzz: frame has found something:\n", done.stdout)
        self.assertIn("broken: a rule\n", done.stdout)
        self.assertIn("fuzz: frame: did not end\n", done.stdout)
        self.assertIn("fuzz: route_file: number_of_executed_units: 42\n", done.stdout)

    def test_every_target_has_a_corpus(self):
        targets = {path.name[:-len("_target.cc")] for path in (ROOT / "tests" / "fuzz").glob("*_target.cc")}
        corpora = {path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir() if any(path.iterdir())}
        self.assertEqual(targets, corpora)


if __name__ == "__main__":
    unittest.main()
