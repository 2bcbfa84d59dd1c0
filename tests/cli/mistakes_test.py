"""Wrong options: exit code 2, and a message with the option, its value and what was expected."""

import unittest

from program import DATA, ProgramTest

CASES = (
    ((), "expected a command: run, bench, doctor, plan"),
    (("rnu",), "'rnu': did you mean 'run'?"),
    (("--verison",), "did you mean '--version'?"),
    (("run", "--rank", "3"), "not expected: --rank 3\n'--rank': did you mean '--ranks'?"),
    (("run", "extra"), "not expected: extra"),
    (("run", "--ranks"), "--ranks: 1 required"),
    (("run", "--ranks", "0"), "--ranks: '0', expected a whole number from 1 to 1024"),
    (("run", "--ranks", "2.5"), "--ranks: '2.5', expected a whole number from 1 to 1024"),
    (("run", "--ranks", "-1"), "--ranks: '-1', expected"),
    (("run", "--experts", "0"), "--experts: '0', expected"),
    (("run", "--topk", "x"), "--topk: 'x', expected"),
    (("run", "--topk", "65"), "--topk: 65, expected at most the number of experts, 64"),
    (("run", "--tokens", "0"), "--tokens: '0', expected"),
    (("run", "--hidden", "99999999999999999999"), "--hidden: '99999999999999999999', expected"),
    (("run", "--dtype", "fp9"), "--dtype: 'fp9', expected bf16|f16|f32|fp8|fp8-ue8m0|bf16-to-fp8|bf16-to-fp8-ue8m0|bytes (did you mean 'fp8'?)"),
    (("run", "--layout", "token_major"), "did you mean 'token-major'?"),
    (("run", "--weights", "never"), "--weights: 'never', expected dispatch|combine"),
    (("run", "--rows-dtype", "fp8"), "--rows-dtype: 'fp8', expected bf16|f16|f32"),
    (("run", "--out-dtype", "f64"), "--out-dtype: 'f64', expected bf16|f16|f32"),
    (("run", "--alignment", "0", "--layout", "packed"), "--alignment: '0', expected"),
    (("run", "--alignment", "8"), "--alignment: only with --layout packed"),
    (("run", "--token-bytes", "8"), "--token-bytes: only with --dtype bytes"),
    (("run", "--scale-bytes", "8"), "--scale-bytes: only with --dtype bytes"),
    (("run", "--layout", "token-major", "--weights", "combine"), "--weights combine: not with --layout token-major"),
    (("run", "--ranks", "4", "--replicas", "3"), "--replicas: 3, expected a divisor of the number of ranks, 4"),
    (("run", "--replicas", "0"), "--replicas: '0', expected a whole number from 1 to 1024"),
    (("plan", "--ranks", "2", "--replicas", "4"), "--replicas: 4, expected a divisor of the number of ranks, 2"),
    (("run", "--rounds", "0"), "--rounds: '0', expected"),
    (("run", "--execution", "cuda"), "--execution: 'cuda', expected fibers|threads|lanes"),
    (("run", "--warps", "257"), "--warps: '257', expected a whole number from 1 to 256"),
    (("run", "--ranks-as", "fibers"), "--ranks-as: 'fibers', expected processes|threads"),
    (("run", "--timeout-ms", "0"), "--timeout-ms: '0', expected"),
    (("run", "--seed", "-1"), "--seed: '-1', expected"),
    (("run", "--skew", "nan"), "--skew: 'nan', expected a number from 0 to 10"),
    (("run", "--layer", "1"), "--layer: only with --routes"),
    (("run", "--routes", "/nonexistent"), "/nonexistent: No such file or directory"),
    (("run", "--routes", DATA), f"{DATA}: a directory"),
    (("run", "--routes", __file__), "mistakes_test.py:1: the line: \"\", expected one JSON object a line"),
    (("run", "--routes", DATA / "routes_batches.jsonl", "--topk", "2"), "--topk: not with --routes"),
    (("run", "--routes", DATA / "routes_batches.jsonl", "--skew", "1"), "--skew: not with --routes"),
    (("run", "--routes", DATA / "routes_batches.jsonl", "--ragged"), "--ragged: not with --routes"),
    (("run", "--routes", DATA / "routes_batches.jsonl", "--experts", "3"),
     "routes_batches.jsonl:1: expert of token 0, route 1: 4, expected -1 to 2 (--experts is 3)"),
    (("run", "--device", "gpu"), "--device: 'gpu', expected auto|cpu|cuda (did you mean 'cpu'?)"),
    (("run", "--device", "cpu", "--devices", "0"), "--devices: not with --device cpu"),
    (("run", "--devices", "-1"), "--devices: '-1', expected a whole number from 0 to 1023"),
    (("run", "--join", "--ranks", "2"), "--ranks: not with --join"),
    (("run", "--join", "--ranks-as", "threads"), "--ranks-as: not with --join"),
    (("run", "--soak", "5"), "--soak: '5', expected a length of time, as 90s, 10m or 1h"),
    (("run", "--soak", "-1s"), "--soak: '-1s', expected a length of time"),
    (("run", "--soak", "1s", "--dtype", "fp8"), "--dtype: not with --soak, which draws it"),
    (("run", "--soak-iteration", "1", "--rounds", "3"), "--rounds: not with --soak-iteration, which draws it"),
    (("run", "--soak", "1s", "--soak-iteration", "1"), "--soak-iteration: not with --soak, it is one job alone"),
    (("run", "--soak", "1s", "--join"), "--join: not with --soak, which starts many jobs"),
    (("run", "--soak", "1s", "--experts", "100000"), "--experts: 100000, expected at most 4096 with --soak"),
    (("run", "--json", "/nonexistent/result.json"), "--json: /nonexistent/result.json: its folder cannot be written to"),
    (("run", "--json", "/tmp"), "--json: /tmp: a directory, expected a file"),
    (("plan", "--topk", "70"), "topk is 70"),
    (("plan", "--alignment", "8"), "--alignment: only with --layout packed"),
    (("plan", "--ranks", "1024", "--hidden", "1099511627776"), "hidden is 1099511627776"),
    (("plan", "--routes", "x"), "not expected: --routes x"),
    (("doctor", "--jsn"), "'--jsn': did you mean '--json'?"),
)


class Mistakes(ProgramTest):
    def test_each(self):
        for words, message in CASES:
            with self.subTest(words=words):
                done = self.call(*words)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_a_job_that_does_not_fit_is_refused_before_it_starts(self):
        done = self.call("run", "--tokens", 10_000_000)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"the ranks need [\d.]+ TiB, and this machine has [\d.]+ [GMT]iB available")

    def test_a_launcher_without_join_is_noticed(self):
        done = self.call("run", "--ranks", 2, "--tokens", 2, "--hidden", 8, "--rounds", 1, OMPI_COMM_WORLD_SIZE="4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("started by mpirun without --join", done.stderr)


if __name__ == "__main__":
    unittest.main()
