"""`moeway bench` on CPU ranks: options, what it prints and writes, and that wrong values never pass."""

import json
import re
import unittest

from program import DamageTest, ProgramTest, without_sanitizer_notes

SHAPE = ("--experts", 7, "--topk", 3, "--hidden", 130)
QUICK = ("bench", "--device", "cpu", *SHAPE, "--tokens", "5,2", "--replays", 2, "--warm-up", 1, "--sets", 2, "--pairs", 4)
TYPES = "bf16,f16,f32,fp8,fp8-ue8m0,bf16-to-fp8,bf16-to-fp8-ue8m0,bytes"


class Bench(ProgramTest):
    def bench_json(self, *words):
        done = self.call(*QUICK, *words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_every_type_layout_weighing_and_form(self):
        for words, layouts in (((), 3), (("--split",), 3), (("--weights", "combine"), 2),
                               (("--weights", "combine", "--split", "--row-source", "--alignment", 4), 2)):
            with self.subTest(words=words):
                names = "padded,packed,token-major" if layouts == 3 else "padded,packed"
                result = self.bench_json("--ranks", 3, "--dtype", TYPES, "--layout", names, *words)
                self.assertEqual(len(result["series"]), 8 * layouts)
                for series in result["series"]:
                    self.assertEqual(series["calls"], "split" if "--split" in words else "fused")
                    self.assertEqual([point["tokens"] for point in series["points"]], [5, 2])
                    # Sets before the timing, the last one after the pairs: sums of all ranks.
                    self.assertEqual(series["points"][0]["verified"]["sums"], 3 * 5 * 3)
                    self.assertGreater(series["points"][0]["verified"]["rows"], 0)

    def test_ranks_as_processes(self):
        result = self.bench_json("--processes", "--layout", "padded")
        self.assertEqual(result["job"]["ranks_as"], "processes")
        self.assertEqual(result["series"][0]["transport"], "host processes")

    def test_json_has_what_a_figure_must_carry(self):
        result = self.bench_json("--commit", "abc123")
        self.assertEqual(set(result), {"schema", "version", "command", "commit", "ok", "seconds", "machine", "device",
                                       "job", "series", "baselines"})
        self.assertEqual(result["schema"], "moeway.bench/1")
        self.assertEqual(result["commit"], "abc123")
        self.assertEqual(result["command"][1], "bench")
        self.assertTrue(result["ok"])
        self.assertIsNone(result["device"])
        self.assertEqual(result["baselines"], [])
        self.assertEqual({name: result["job"][name] for name in ("ranks", "device", "sets", "pairs", "warm_up", "replays")},
                         {"ranks": 2, "device": "cpu", "sets": 2, "pairs": 4, "warm_up": 1, "replays": 2})
        series = result["series"][0]
        self.assertEqual(series["transport"], "host threads")
        self.assertEqual({name: series["shape"][name] for name in ("experts", "topk", "hidden", "dispatch_dtype", "scales",
                                                                   "layout", "weights")},
                         {"experts": 7, "topk": 3, "hidden": 130, "dispatch_dtype": "f8_e4m3", "scales": "f32",
                          "layout": "padded", "weights": "dispatch"})
        point = series["points"][0]
        for times in ("pair_us", "dispatch_us"):
            self.assertEqual(set(point[times]), {"median", "p10", "p90"})
            self.assertGreater(point[times]["p10"], 0)
            self.assertLessEqual(point[times]["p10"], point[times]["median"])
            self.assertLessEqual(point[times]["median"], point[times]["p90"])
        # 130 bytes and two scales for each of one or two ranks that a token goes to.
        self.assertGreaterEqual(point["dispatch_bytes"], 5 * 138)
        self.assertLessEqual(point["dispatch_bytes"], 5 * 2 * 138)
        self.assertEqual(point["wrong"], 0)
        self.assertIsNone(self.bench_json()["commit"])

    def test_table(self):
        done = self.call(*QUICK, "--layout", "padded,token-major")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^  ranks +2 as threads, on the host$")
        self.assertEqual(len(re.findall(r"(?m)^ +tokens +pair +p10 +p90 +dispatch +combine$", done.stdout)), 2)
        self.assertEqual(len(re.findall(r"(?m)^ +5( +\d+\.\d\d){5}$", done.stdout)), 2)
        self.assertRegex(done.stdout, r"\nAll [\d,]+ rows and [\d,]+ sums looked at were right, bit by bit, in ")
        self.assertEqual(self.call(*QUICK, "--quiet").stdout, "")

    def test_progress(self):
        process = self.start("bench", "--device", "cpu", "--experts", 4, "--topk", 2, "--hidden", 8, "--tokens", 1,
                             "--replays", 100000, "--pairs", 80)
        line = process.stderr.readline()
        while line and not without_sanitizer_notes(line):
            line = process.stderr.readline()
        self.assertRegex(line, r"\Amoeway bench: step [\d,]+ of [\d,]+")
        process.terminate()
        _, stderr = process.communicate(timeout=60)
        self.assertIn("signal 15 came; the ranks were ended", stderr)


class Mistakes(ProgramTest):
    def test_each(self):
        for words, message in (
                (("--tokens", "0"), "--tokens: '0', expected a whole number from 1 to 8192"),
                (("--tokens", "8,8193"), "--tokens: '8193', expected a whole number from 1 to 8192"),
                (("--tokens", "1,,2"), "--tokens: '', expected a whole number from 1 to 8192"),
                (("--dtype", "bf16,fp9"), "--dtype: 'fp9', expected bf16|f16|f32|fp8|fp8-ue8m0|bf16-to-fp8|bf16-to-fp8-ue8m0|bytes (did you mean 'fp8'?)"),
                (("--layout", "padded,flat"), "--layout: 'flat', expected padded|packed|token-major"),
                (("--weights", "never"), "--weights: 'never', expected dispatch|combine"),
                (("--ranks", "0"), "--ranks: '0', expected a whole number from 1 to 1024"),
                (("--topk", "300"), "--topk: 300, expected at most the number of experts, 256"),
                (("--sets", "0"), "--sets: '0', expected a whole number from 1 to 64"),
                (("--sets", "3", "--pairs", "4"), "--pairs: 4, expected a multiple of --sets, 3"),
                (("--device", "gpu"), "--device: 'gpu', expected auto|cpu|cuda"),
                (("--device", "cpu", "--devices", "0"), "--devices: not with --device cpu"),
                (("--devices", "0,x"), "--devices: 'x', expected a whole number from 0 to 1023"),
                (("--layout", "padded,token-major", "--weights", "combine"), "--weights combine: not with --layout token-major"),
                (("--layout", "token-major", "--row-source"), "--row-source: not with --layout token-major"),
                (("--alignment", "8"), "--alignment: only with --layout packed"),
                (("--token-bytes", "8"), "--token-bytes: only with --dtype bytes"),
                (("--json", "/nonexistent/x.json"), "--json: /nonexistent/x.json: its folder cannot be written to"),
                (("--spilt",), "'--spilt': did you mean '--split'?")):
            with self.subTest(words=words):
                done = self.call("bench", *words)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_a_shape_that_does_not_fit_is_refused_before_it_starts(self):
        done = self.call("bench", "--device", "cpu", "--tokens", 8192, "--ranks", 64, "--dtype", "f32")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"8192 tokens need [\d.]+ TiB, and this machine has [\d.]+ [GMT]iB available")

    def test_a_gpu_that_is_not_there_is_no_success(self):
        done = self.call("bench", "--device", "cuda")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Amoeway bench: --device cuda: (this moeway was built without CUDA|no GPU: )")
        # Nor is it taken for one that nobody asked for: the table says why ranks are on the host.
        done = self.call("bench", *QUICK[3:])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"on the host\n +(this moeway was built without CUDA|no GPU: )")


class Checked(DamageTest):
    """One call of a rank is damaged; calls are counted from 1. Two sets are verified, then pairs are timed: 2 replays of
    4 pairs, each made twice, of which the second replay is for the check."""

    ONCE = ("bench", "--device", "cpu", *SHAPE, "--tokens", 5, "--replays", 1, "--warm-up", 0, "--sets", 2, "--pairs", 4)
    LAST = 2 + 2 * 2 * 4

    def call_damaged(self, what, call, *words):
        return self.call_with_damage(what, *self.ONCE, "--split", "--processes", *words,
                                     MOEWAY_DAMAGED_CALL=str(call))

    def test_no_damage_passes(self):
        self.assertEqual(self.call_damaged("nothing", 1).returncode, 0)

    def test_damage_before_and_after_the_timing_is_found(self):
        for call in (1, 2, self.LAST):
            for what, text in (("row", r"5 tokens, rank 0, set \d, row 0 \(rank \d, token \d, k \d\), element 0: expected "),
                               ("count", r"number of rows of expert \d: expected \d+, got \d+"),
                               ("sum", r"rank 0, set \d, sum of token 0, element 0: expected .*, got ")):
                with self.subTest(what=what, call=call):
                    done = self.call_damaged(what, call)
                    self.assertEqual(done.returncode, 1, done.stdout)
                    self.assertRegex(done.stderr, text)
                    self.assertRegex(done.stderr, r"FAILED: [1-9][\d,]* wrong in ")
                    self.assertIn("WRONG VALUES", done.stdout)
                    self.assertNotIn("were right", done.stdout)

    def test_json_says_so(self):
        done = self.call_damaged("sum", self.LAST, "--json")
        self.assertEqual(done.returncode, 1)
        result = json.loads(done.stdout)
        self.assertFalse(result["ok"])
        self.assertGreaterEqual(result["series"][0]["points"][0]["wrong"], 1)
        self.assertIn("sum of token 0", result["series"][0]["points"][0]["findings"][0])


if __name__ == "__main__":
    unittest.main()
