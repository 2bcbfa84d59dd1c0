"""`moeway run` on small jobs: every layout, type, way of weighing and form of execution, and what it prints."""

import json
import os
import pty
import shutil
import subprocess
import unittest

from program import DATA, LIMIT_S, PROGRAM, TRACES, ProgramTest

SMALL = ("--ranks", 3, "--experts", 7, "--topk", 3, "--tokens", 9, "--hidden", 130, "--ragged", "--rounds", 4)
TYPES = ("bf16", "f16", "f32", "fp8", "fp8-ue8m0", "bf16-to-fp8", "bf16-to-fp8-ue8m0", "bytes")
FORMS = (("padded", "dispatch"), ("padded", "combine"), ("packed", "dispatch"), ("packed", "combine"),
         ("token-major", "dispatch"))


class Run(ProgramTest):
    def test_every_layout_type_and_weighing(self):
        for layout, weights in FORMS:
            for dtype in TYPES:
                with self.subTest(layout=layout, weights=weights, dtype=dtype):
                    result = self.run_json(*SMALL, "--layout", layout, "--weights", weights, "--dtype", dtype)
                    self.assertTrue(result["ok"])
                    self.assertEqual(result["verified"]["sums"], result["moved"]["tokens"])
                    rows = result["moved"]["tokens_sent" if layout == "token-major" else "routes"]
                    self.assertEqual(result["verified"]["rows"], rows)
                    self.assertGreater(rows, 0)

    def test_replicas_of_every_layout_and_weighing(self):
        for layout, weights in FORMS:
            for ranks, replicas in ((2, 2), (4, 2), (6, 3), (4, 4)):
                with self.subTest(layout=layout, weights=weights, ranks=ranks, replicas=replicas):
                    result = self.run_json(*SMALL[2:], "--ranks", ranks, "--replicas", replicas, "--layout", layout,
                                           "--weights", weights)
                    self.assertEqual(result["shape"]["replicas"], replicas)
                    self.assertEqual(result["verified"]["sums"], replicas * result["moved"]["tokens"])
                    rows = result["moved"]["tokens_sent" if layout == "token-major" else "routes"]
                    self.assertEqual(result["verified"]["rows"], rows)
                    self.assertEqual(result["moved"]["tokens"], result["routes"]["tokens"])

    def test_every_row_and_sum_type(self):
        for rows in ("bf16", "f16", "f32"):
            for sums in ("bf16", "f16", "f32"):
                with self.subTest(rows=rows, sums=sums):
                    result = self.run_json(*SMALL, "--rows-dtype", rows, "--out-dtype", sums)
                    self.assertEqual(result["shape"]["row_dtype"], rows)
                    self.assertEqual(result["shape"]["output_dtype"], sums)

    def test_every_execution_and_kind_of_rank(self):
        for execution in ("fibers", "threads", "lanes"):
            for ranks_as in ("processes", "threads"):
                for warps in (1, 3):
                    with self.subTest(execution=execution, ranks_as=ranks_as, warps=warps):
                        result = self.run_json(*SMALL, "--execution", execution, "--ranks-as", ranks_as,
                                               "--warps", warps)
                        self.assertEqual(result["transport"], "host " + ranks_as)

    def test_odd_shapes(self):
        usual = {"--ranks": 2, "--tokens": 5, "--hidden": 40, "--rounds": 3}
        for odd in ({"--ranks": 1}, {"--ranks": 5, "--experts": 2, "--topk": 2}, {"--experts": 1, "--topk": 1},
                    {"--hidden": 1}, {"--tokens": 1}, {"--experts": 12, "--topk": 12, "--skew": 0}, {"--rounds": 1},
                    {"--layout": "packed", "--alignment": 128, "--experts": 9},
                    {"--dtype": "bytes", "--token-bytes": 37, "--scale-bytes": 0},
                    {"--dtype": "bytes", "--token-bytes": 3, "--scale-bytes": 5}):
            with self.subTest(odd=odd):
                self.run_json(*(word for option in {**usual, **odd}.items() for word in option))

    def test_rows_without_room_are_dropped_as_the_check_says(self):
        for layout, weights in FORMS[:4]:
            with self.subTest(layout=layout, weights=weights):
                result = self.run_json(*SMALL, "--layout", layout, "--weights", weights, "--max-recv-tokens", 6,
                                       "--overflow", "drop")
                self.assertGreater(result["moved"]["rows_dropped"], 0)
                self.assertGreater(result["verified"]["rows"], 0)
                self.assertEqual(result["verified"]["rows"] + result["moved"]["rows_dropped"], result["moved"]["routes"])
                self.assertEqual(result["shape"]["max_recv_tokens"], 6)

    def test_an_overflow_is_an_error(self):
        done = self.call("run", *SMALL, "--max-recv-tokens", 2)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout + done.stderr, r"OVERFLOW.* expert \d gets \d+ rows, expected at most max_recv_tokens = 2")

    def test_counts_add_up(self):
        result = self.run_json("--ranks", 4, "--experts", 10, "--topk", 4, "--tokens", 16, "--hidden", 64,
                               "--rounds", 6)
        moved, load = result["moved"], result["load"]
        self.assertEqual(moved["tokens"], 4 * 16 * 6)
        self.assertEqual(moved["routes"], 4 * moved["tokens"])
        self.assertEqual(sum(load["experts"]), moved["routes"])
        self.assertEqual(sum(rank["rows_received"] for rank in load["ranks"]), moved["routes"])
        self.assertEqual([(rank["first_expert"], rank["num_experts"]) for rank in load["ranks"]],
                         [(0, 3), (3, 3), (6, 2), (8, 2)])
        self.assertEqual(moved["dispatch_bytes"], moved["tokens_sent"] * 128)
        self.assertEqual(moved["dispatch_bytes_by_route"], moved["routes"] * 128)
        self.assertEqual(moved["combine_bytes"], moved["tokens_sent"] * 128)
        self.assertLess(moved["tokens_sent"], moved["routes"])
        self.assertEqual(result["times_us"]["rounds"], 2)

    def test_recorded_routes(self):
        for name, words, tokens in (("routes_batches.jsonl", (), 6), ("routes_tokens.jsonl", ("--tokens", 2), 3),
                                    ("routes_two_ranks.jsonl", (), 4)):
            with self.subTest(name=name):
                result = self.run_json("--ranks", 3, "--routes", DATA / name, "--hidden", 50, "--rounds", 5, *words)
                self.assertEqual(result["routes"]["tokens"], tokens)
                self.assertEqual(result["routes"]["source"], str(DATA / name))

    def test_real_traces(self):
        for name in ("olmoe-1b-7b-gsm8k.jsonl", "qwen1.5-moe-a2.7b-gsm8k.jsonl"):
            if not (TRACES / name).exists():
                self.skipTest(f"needs {TRACES / name}")
            for layout, weights in FORMS:
                with self.subTest(name=name, layout=layout, weights=weights):
                    self.run_json("--routes", TRACES / name, "--hidden", 64, "--rounds", 3, "--layout", layout,
                                  "--weights", weights)

    def test_ranks_of_a_launcher(self):
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            self.skipTest("needs mpirun")
        done = subprocess.run([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", PROGRAM, "run", "--join",
                               "--tokens", "7", "--hidden", "30", "--rounds", "3", "--json"],
                              env=dict(self.environment, TMPDIR=self.folder), capture_output=True, text=True,
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)  # One rank speaks for all.
        self.assertEqual(result["job"]["ranks"], 3)
        self.assertEqual(result["job"]["ranks_as"], "launched")
        self.assertEqual(result["verified"]["sums"], 3 * 7 * 3)


class Output(ProgramTest):
    def test_table(self):
        done = self.call("run", *SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^  ranks +3 as processes, transport: host processes; fibers, 4 warps a rank$")
        self.assertRegex(done.stdout, r"(?m)^  rank 2 #+ +[\d,]+ +\d+\.\d %   experts 5-6 [1-9.]{2}$")
        self.assertRegex(done.stdout, r"(?m)^  combine_recv +[\d.]+ (us|ms|s) +[\d.]+ (us|ms|s)$")
        self.assertRegex(done.stdout, r"All [\d,]+ rows and [\d,]+ sums verified, bit by bit, in .*\.\n\Z")
        self.assertEqual(done.stderr, "")

    def test_blocks_where_the_locale_has_them(self):
        done = self.call("run", *SMALL, LC_ALL="C.UTF-8")
        self.assertIn("█", done.stdout)

    def test_quiet(self):
        done = self.call("run", *SMALL, "--quiet")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_json_file_beside_the_table(self):
        path = self.folder + "/result.json"
        done = self.call("run", *SMALL, "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("verified, bit by bit", done.stdout)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["schema"], "moeway.run/1")

    def test_json_says_all_that_is_documented(self):
        result = self.run_json(*SMALL)
        keys = {"schema", "version", "command", "ok", "seconds", "transport", "job", "shape", "routes", "moved", "load",
                "times_us", "verified", "mismatches", "failures"}
        self.assertEqual(set(result), keys)
        self.assertEqual(set(result["job"]), {"ranks", "ranks_as", "device", "devices", "execution", "warps", "rounds", "seed",
                                              "timeout_ms"})
        self.assertEqual(set(result["moved"]), {"tokens", "routes", "tokens_sent", "rows_dropped", "dispatch_bytes",
                                                "dispatch_bytes_by_route", "combine_bytes", "combine_bytes_by_route"})
        self.assertEqual(set(result["times_us"]["phases"]),
                         {"dispatch_send", "dispatch_recv", "combine_send", "combine_recv"})
        self.assertEqual(result["mismatches"], {"count": 0, "first": []})
        self.assertEqual(result["failures"], [])

    def test_same_seed_same_load(self):
        first, second = (self.run_json(*SMALL, "--seed", 9) for _ in range(2))
        other = self.run_json(*SMALL, "--seed", 10)
        self.assertEqual(first["load"], second["load"])
        self.assertNotEqual(first["load"], other["load"])

    def test_progress_on_a_terminal_and_elsewhere(self):
        def first_progress(stderr, ends):
            process = subprocess.Popen([PROGRAM, "run", "--ranks", "2", "--tokens", "4", "--hidden", "8", "--rounds",
                                        "1000000000", "--execution", "threads"], env=self.environment, stdout=subprocess.DEVNULL, stderr=stderr,
                                       stdin=subprocess.DEVNULL)
            try:
                return os.read(ends, 300).decode("utf-8")
            finally:
                process.terminate()
                process.wait(LIMIT_S)

        ours, theirs = pty.openpty()
        self.assertRegex(first_progress(theirs, ours), r"\A\r\x1b\[K\[ *#* *\] round [\d,]+ of 1,000,000,000")
        os.close(ours)
        os.close(theirs)
        ours, theirs = os.pipe()
        self.assertRegex(first_progress(theirs, ours), r"\Amoeway run: round [\d,]+ of 1,000,000,000, [\d.]+ s left\n")
        os.close(ours)
        os.close(theirs)

    def test_says_why_ranks_are_on_the_host(self):
        done = self.call("run", *SMALL)
        self.assertRegex(done.stdout, r"\n +on the host: (this moeway was built without CUDA|no GPU: )")
        self.assertNotIn("on the host", self.call("run", *SMALL, "--device", "cpu").stdout)
        done = self.call("run", *SMALL, "--device", "cuda")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Amoeway run: --device cuda: (this moeway was built without CUDA|no GPU: )")

    def test_files_cannot_be_mistaken_for_success(self):
        done = self.call("run", *SMALL, "--json", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/dev/full", done.stderr)


if __name__ == "__main__":
    unittest.main()
