"""`moeway run --soak`: jobs of random shapes; what is drawn follows from the seed, and a failure can be repeated alone."""

import json
import re
import shlex
import signal
import time
import unittest

from program import LIMIT_S, DamageTest, ProgramTest, without_sanitizer_notes

SMALL = ("--ranks", 3, "--experts", 7, "--topk", 3, "--tokens", 8, "--hidden", 130)


class Soak(ProgramTest):
    def soak_json(self, *words):
        done = self.call("run", *words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_runs_jobs_until_the_time_is_up(self):
        start = time.monotonic()
        result = self.soak_json("--soak", "2s", "--seed", 5, *SMALL)
        self.assertGreaterEqual(time.monotonic() - start, 2)
        self.assertTrue(result["ok"])
        self.assertGreaterEqual(result["seconds"], 2)
        self.assertIsNone(result["failed"])
        self.assertGreater(result["iterations"], 1)
        self.assertGreaterEqual(result["rounds"], result["iterations"])
        self.assertGreater(result["verified"]["rows"], 0)
        self.assertEqual(sum(result["drawn"]["ranks_as"].values()), result["iterations"])
        self.assertLessEqual(max(map(int, result["drawn"]["ranks"])), 3)
        self.assertEqual(result["limits"], {"ranks": 3, "experts": 7, "topk": 3, "tokens": 8, "hidden": 130})

    def test_says_all_that_is_documented(self):
        result = self.soak_json("--soak-iteration", 0, *SMALL)
        self.assertEqual(set(result), {"schema", "version", "command", "ok", "seconds", "seed", "first_iteration",
                                       "iterations", "rounds", "limits", "drawn", "verified", "failed"})
        self.assertEqual(result["schema"], "moeway.soak/1")
        self.assertEqual(set(result["drawn"]), {"ranks", "ranks_as", "layout", "weights", "dispatch_dtype", "execution"})

    def test_an_iteration_follows_from_seed_and_number(self):
        whole = self.soak_json("--soak", "0.5s", "--seed", 9, *SMALL)
        alone = [self.soak_json("--soak-iteration", i, "--seed", 9, *SMALL) for i in range(whole["iterations"])]
        for kind in ("rows", "sums"):
            self.assertEqual(sum(result["verified"][kind] for result in alone), whole["verified"][kind])
        self.assertEqual(sum(result["rounds"] for result in alone), whole["rounds"])
        self.assertEqual([result["iterations"] for result in alone], [1] * len(alone))

    def test_iterations_and_seeds_differ(self):
        seen = {json.dumps(self.soak_json("--soak-iteration", i, "--seed", seed, *SMALL)["verified"])
                for i, seed in ((1, 1), (2, 1), (3, 1), (1, 2), (2, 2))}
        self.assertGreater(len(seen), 2)

    def test_ranks_are_what_was_asked_for(self):
        for ranks_as in ("threads", "processes"):
            result = self.soak_json("--soak", "1s", "--ranks-as", ranks_as, *SMALL)
            self.assertEqual(set(result["drawn"]["ranks_as"]), {ranks_as})

    def test_table(self):
        done = self.call("run", "--soak", "1s", *SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^  soak +[\d,]+ rounds? of [\d,]+ jobs? in [\d.]+ m?s; seed 0, from iteration 0 on$")
        self.assertRegex(done.stdout, r"(?m)^  up to +3 ranks, 7 experts, top-3, hidden 130, 8 tokens a rank and round$")
        self.assertRegex(done.stdout, r"All [\d,]+ rows? and [\d,]+ sums? of [\d,]+ rounds? in [\d,]+ jobs? verified, bit by "
                                      r"bit, in [\d.]+ m?s\.\n\Z")
        self.assertEqual(done.stderr, "")
        done = self.call("run", "--soak", "0.1s", "--quiet", *SMALL)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_signal_ends_it(self):
        process = self.start("run", "--soak", "1h", *SMALL)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, -signal.SIGTERM, without_sanitizer_notes(err))


class SoakFinds(DamageTest):
    def test_damage_and_how_to_repeat_it(self):
        # The first job that calls the four phases twice in a process.
        done = self.call_with_damage("sum", "run", "--soak", "1h", "--seed", 3, "--ranks-as", "processes", *SMALL)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"\Amoeway run: rank \d, (object \d, )?round \d+: sum of token 0, element 0: expected ")
        self.assertRegex(done.stderr, r"(?m)^in seed 3, iteration \d+: \d ranks? as processes, \d+ rounds?, ")
        self.assertRegex(done.stderr, r"(?m)^  object 0: \d experts, top-\d, hidden \d+, at most \d tokens?; dispatch ")
        repeat = re.search(r"to repeat it alone:\n  moeway (run --soak-iteration \d+ .*)\n\Z", done.stderr)
        self.assertTrue(repeat, done.stderr)
        words = shlex.split(repeat.group(1))
        self.assertEqual(self.call(*words).returncode, 0)  # Without damage.
        again = self.call_with_damage("sum", *words, "--json")
        self.assertEqual(again.returncode, 1, again.stderr)
        failed = json.loads(again.stdout)["failed"]
        self.assertEqual(failed["repeat"], "moeway " + repeat.group(1))
        self.assertEqual(str(failed["iteration"]["number"]), words[2])
        self.assertGreater(failed["mismatches"]["count"], 0)
        # What was wrong is the same again, but for the time it took.
        def first_lines(text):
            return [line for line in text.split("FAILED")[0].splitlines() if "expected" in line]
        self.assertEqual(first_lines(again.stderr), first_lines(done.stderr))


if __name__ == "__main__":
    unittest.main()
