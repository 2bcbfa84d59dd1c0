"""The C++ example in README.md is examples/round.cc, word for word; that file is compiled and run by the tests."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Readme(unittest.TestCase):
    def test_quotes_the_example(self):
        quoted = re.findall(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
        self.assertEqual(quoted, [(ROOT / "examples" / "round.cc").read_text(encoding="utf-8")])

    def test_links_lead_to_files(self):
        for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / document).read_text(encoding="utf-8")):
                self.assertTrue((ROOT / target).exists(), f"{document} links to {target}")


if __name__ == "__main__":
    unittest.main()
