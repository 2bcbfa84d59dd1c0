"""A wrong result must never pass: each kind of damage, done to one call of every rank, fails the run and is named."""

import json
import unittest

from program import DamageTest

JOB = ("run", "--ranks", 2, "--experts", 6, "--topk", 2, "--tokens", 8, "--hidden", 40, "--rounds", 6)


class Checked(DamageTest):
    def call_damaged(self, what, *words):
        return self.call_with_damage(what, *JOB, *words)

    def test_no_damage_passes(self):
        self.assertEqual(self.call_damaged("nothing").returncode, 0)

    def test_each_kind_is_found(self):
        # The four phases are called in rounds 2, 3, 5 and 6: the second call of each is in round 3.
        for what, text in (("row", r"rank 0, round 3: row 0 of expert \d \(from rank \d, token \d, k \d\), element 0: "
                                   r"expected .* \(0x....\), got .* \(0x....\)"),
                           ("count", r"round 3: count of expert \d: expected \d+, got \d+"),
                           ("source", r"round 3: source of row 0 of expert \d .*: expected rank \d, token \d, k \d, got "),
                           ("sum", r"rank 0, round 3: sum of token 0, element 0: expected .*, got ")):
            with self.subTest(what=what):
                done = self.call_damaged(what)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stderr, text)
                self.assertRegex(done.stderr, r"FAILED: [1-9][\d,]* wrong in ")
                self.assertNotIn("verified", done.stdout)

    def test_a_stray_write_is_found_in_the_end(self):
        done = self.call_damaged("stray")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"round 6: untouched of row \d+: expected a row that holds nothing left as it was")

    def test_json_has_the_first_mismatches(self):
        done = self.call_damaged("row", "--json")
        self.assertEqual(done.returncode, 1)
        result = json.loads(done.stdout)
        self.assertFalse(result["ok"])
        self.assertGreaterEqual(result["mismatches"]["count"], 2)
        first = result["mismatches"]["first"][0]
        self.assertEqual({key: first[key] for key in ("rank", "round", "what", "row", "element")},
                         {"rank": 0, "round": 3, "what": "row", "row": 0, "element": 0})
        self.assertEqual(set(first), {"rank", "round", "what", "expert", "row", "element", "from_rank", "from_token",
                                      "from_k", "expected", "got"})


if __name__ == "__main__":
    unittest.main()
