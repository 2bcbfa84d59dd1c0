"""tools/check_suites.py fails when a suite ran nothing, and says which tests were skipped and why."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_suites  # noqa: E402

PASSED = '<testcase name="{}" status="run"><system-out>ok</system-out></testcase>'
FAILED = '<testcase name="{}" status="fail"><failure message=""/></testcase>'
SKIPPED = ('<testcase name="{}" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>'
           "[ RUN      ] A.B\nfile.cc:6: Skipped\nno traces in ../shared/routes\n\n[  SKIPPED ] A.B (0 ms)\n</system-out></testcase>")

PYTEST = ('<testcase name="{}" status="{}"><system-out>ss..\nSKIPPED [2] tests/python/test_a.py:7: no torch here\n'
          "2 passed, 2 skipped</system-out></testcase>")


class CheckSuites(unittest.TestCase):
    def check(self, suites, *cases):
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder, "results.xml")
            results.write_text("<testsuite>" + "".join(cases) + "</testsuite>", encoding="utf-8")
            return check_suites.check(suites, results)

    def test_accepts_suites_that_ran(self):
        self.assertEqual(self.check(["unit", "issues"], PASSED.format("unit.A.B"), FAILED.format("issues.A.B")), ([], []))

    def test_finds_a_suite_without_tests(self):
        lines, empty = self.check(["unit", "issues"], PASSED.format("unit.A.B"))
        self.assertEqual(empty, ["issues"])
        self.assertEqual(lines, ["suite issues: no test ran"])

    def test_finds_a_suite_that_skipped_everything(self):
        lines, empty = self.check(["unit"], SKIPPED.format("unit.A.B"))
        self.assertEqual(empty, ["unit"])
        self.assertIn("skipped: unit.A.B: no traces in ../shared/routes", lines)

    def test_names_skipped_tests_beside_those_that_ran(self):
        lines, empty = self.check(["unit"], SKIPPED.format("unit.A.B"), PASSED.format("unit.A.C"))
        self.assertEqual(empty, [])
        self.assertEqual(lines, ["skipped: unit.A.B: no traces in ../shared/routes"])

    def test_names_what_pytest_skipped_within_a_file(self):
        lines, empty = self.check(["python"], PYTEST.format("python.a", "run"), PYTEST.format("python.b", "notrun"))
        self.assertEqual(empty, [])
        self.assertEqual(lines, ["skipped: python.b: no torch here", "skipped in python.a: no torch here"])


if __name__ == "__main__":
    unittest.main()
