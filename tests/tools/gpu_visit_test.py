"""tools/gpu_visit.sh with stand-ins for what it calls: a failed step is named and the others go on, and nothing passes unseen."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Stands for a compiled moeway: its benchmark writes the smallest document that a table can be made of.
MOEWAY = """#!/bin/bash
echo "moeway $*"
[ "$1" = bench ] || exit 0
while [ $# -gt 0 ]; do
  [ "$1" = --json ] && cp "$(dirname "$0")/document.json" "$2"
  [ "$1" = --layout ] && [ "$2" = packed ] && { echo "packed is broken"; exit 1; }
  shift
done
"""
SERIES = [{"shape": {"experts": 8, "topk": 2, "hidden": 16, "dispatch_dtype": dtype, "scales": "none", "layout": "padded",
                     "weights": "dispatch"}, "calls": "fused", "transport": "nvlink",
           "points": [{"tokens": 1, "pair_us": {"median": 7.5, "p10": 7, "p90": 8}, "wrong": 0}], "failures": []}
          for dtype in ("f8_e4m3", "bf16")]
DOCUMENT = {"schema": "moeway.bench/1", "commit": None, "device": None, "job": {"ranks": 2, "ranks_as": "threads", "sets": 1},
            "series": SERIES, "baselines": []}


class GpuVisit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("tools", "programs", "build/gpu-visit/cli", "build/gpu-visit/tests", "results"):
            (self.root / name).mkdir(parents=True)
        for name in ("gpu_visit.sh", "bench_results.py", "plot_latency.py", "svg_chart.py"):
            shutil.copy(ROOT / "tools" / name, self.root / "tools")
        (self.root / "bench").mkdir()
        shutil.copy(ROOT / "bench" / "reference_figures.json", self.root / "bench")
        self.program("programs/nvidia-smi", "#!/bin/sh\n[ \"$1\" = -L ] && printf 'GPU 0: A\\nGPU 1: B\\n'\n")
        self.program("programs/python3", f"#!/bin/sh\n[ \"$2\" = 'import torch, pytest' ] && exit 1\nexec {sys.executable} \"$@\"\n")
        self.program("programs/compute-sanitizer", "#!/bin/sh\necho sanitizing\n")
        self.program("build/gpu-visit/cli/moeway", MOEWAY)
        (self.root / "build/gpu-visit/cli/document.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
        for name in ("kernels_cuda_test", "gpu_test", "gpu_input_test", "gpu_processes_test", "issues_gpu_test"):
            self.program(f"build/gpu-visit/tests/{name}", "#!/bin/sh\n")

    def program(self, name, text):
        (self.root / name).write_text(text, encoding="utf-8")
        (self.root / name).chmod(0o755)

    def visit(self, *words):
        environment = {name: value for name, value in os.environ.items() if name not in ("OUT", "MOEWAY_COMMIT")}
        environment["PATH"] = f"{self.root / 'programs'}:{environment['PATH']}"
        return subprocess.run([self.root / "tools" / "gpu_visit.sh", *words, self.root / "results"], env=environment,
                              capture_output=True, text=True, check=False)

    def test_all_steps(self):
        done = self.visit("--steps", "tests,jobs,bench,compare,sanitizer", "--layouts", "padded", "--sets", "1", "--commit", "abc")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        steps = (self.root / "results/steps.txt").read_text(encoding="utf-8")
        for step in ("gpu_test", "gpu_input_test", "kernels_cuda_test", "issues_gpu_test", "gpu_processes_test", "doctor", "run, several ranks on a GPU", "bench padded-sets1",
                     "bench sms16-sets1", "bench split-sets1", "plot fp8", "memcheck --dtype bf16", "racecheck --dtype bf16", "synccheck --dtype bf16"):
            self.assertRegex(steps, rf"(?m)^ok +\d+ s  {step}$")
        for step in ("python tests", "compare"):
            self.assertRegex(steps, rf"(?m)^SKIPPED +0 s  {step}: torch or pytest is missing$")
        log = (self.root / "results/visit.log").read_text(encoding="utf-8")
        self.assertIn("--tokens 1,2,4,8,16,32,64,128,256,512,1024,2048,4096 --dtype fp8,bf16 --layout padded --sets 1\n", log)
        self.assertIn("--commit abc", log)
        self.assertEqual(len(json.loads((self.root / "results/bench.json").read_text(encoding="utf-8"))), 6)
        self.assertIn("commit abc, 2 GPUs, 2 ranks", done.stdout)
        self.assertRegex(done.stdout, r"bf16, padded, fused, 1 set +7\.50")
        self.assertLessEqual(len(os.listdir(self.root / "results")), 8)

    def test_the_comparison_is_made_for_each_type(self):
        self.program("programs/python3", "#!/bin/sh\necho \"python $*\"\n")  # With torch.
        done = self.visit("--steps", "compare", "--ranks", "2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        log = (self.root / "results/visit.log").read_text(encoding="utf-8")
        for dtype in ("bf16", "fp8", "bf16-to-fp8"):
            self.assertRegex(done.stdout, rf"ok +\d+ s  compare {dtype}\n")
            self.assertIn(f"compare.py --ranks 2 --tokens 1,8,32,128 --dtype {dtype} ", log)

    def test_a_failed_step_is_named_and_the_others_go_on(self):
        self.program("build/gpu-visit/tests/gpu_test", "#!/bin/sh\necho 'one is wrong'\nexit 1\n")
        done = self.visit("--steps", "tests,bench", "--layouts", "packed,padded", "--sets", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"FAILED +\d+ s  gpu_test \(exit code 1\)\n    one is wrong\n")
        self.assertRegex(done.stdout, r"FAILED +\d+ s  bench packed-sets1 \(exit code 1\)\n(    .*\n)*    packed is broken\n")
        self.assertRegex(done.stdout, r"ok +\d+ s  kernels_cuda_test\n")
        self.assertRegex(done.stdout, r"ok +\d+ s  bench padded-sets1\n")

    def test_tests_that_were_left_out_are_named(self):
        self.program("build/gpu-visit/tests/gpu_test", "#!/bin/sh\necho 'needs 1 CUDA devices, this machine has 0'\n")
        self.program("build/gpu-visit/tests/issues_gpu_test", "#!/bin/sh\necho '[  SKIPPED ] Rule.Holds (3 ms)'\necho '[  SKIPPED ] Rule.Holds'\n")
        done = self.visit("--steps", "tests")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"NOT RUN +0 s  gpu_test: needs 1 CUDA devices, this machine has 0\n")
        self.assertEqual(done.stdout.count("    [  SKIPPED ] Rule.Holds\n"), 2)  # Threads, and processes.

    def test_steps_without_time_left_are_no_success(self):
        done = self.visit("--steps", "tests", "--seconds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"NOT RUN +0 s  gpu_test: no time left\n")

    def test_benches_are_made_for_each_number_of_ranks_and_budget(self):
        done = self.visit("--steps", "jobs,bench", "--ranks", "2,1", "--sms", "8,32", "--layouts", "padded", "--sets", "1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("sms8", "sms32", "ranks1-sms8", "ranks1-padded", "ranks1-bytes"):
            self.assertRegex(done.stdout, rf"ok +\d+ s  bench {name}-sets1\n")
        log = (self.root / "results/visit.log").read_text(encoding="utf-8")
        self.assertRegex(log, r"moeway bench --device cuda --ranks 1 .* --sms 32 ")
        self.assertIn("2 GPUs, 2 ranks", done.stdout)

    def test_ranks_share_the_only_gpu(self):
        self.program("programs/nvidia-smi", "#!/bin/sh\n[ \"$1\" = -L ] && printf 'GPU 0: A\\n'\n")
        self.program("programs/python3", "#!/bin/sh\n")  # With torch.
        done = self.visit("--steps", "jobs,compare")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 GPUs, 2 ranks", done.stdout)
        self.assertRegex(done.stdout, r"SKIPPED +0 s  compare: other libraries want a GPU for each rank\n")

    def test_a_machine_without_gpus_is_no_success(self):
        self.program("programs/nvidia-smi", "#!/bin/sh\nexit 9\n")
        done = self.visit("--steps", "tests")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nvidia-smi finds no GPU", done.stdout)
        self.assertNotIn("kernels_cuda_test", done.stdout)

    def test_a_missing_build_is_named(self):
        (self.root / "build/gpu-visit/cli/moeway").unlink()
        done = self.visit("--steps", "jobs")
        self.assertEqual(done.returncode, 1)
        self.assertIn("build/gpu-visit/cli/moeway is missing: build it first", done.stdout)

    def test_mistakes_name_option_value_and_what_was_expected(self):
        for words, message in ((("--steps", "tests,foo"), "--steps: 'foo', expected build, tests, jobs, bench, compare or sanitizer"),
                               (("--sms", "8;16"), "--sms: '8;16', expected numbers separated by commas"),
                               (("--ranks", "two"), "--ranks: 'two', expected numbers separated by commas"),
                               (("--seconds", "ten"), "--seconds: 'ten', expected a whole number"),
                               (("--speed",), "--speed: expected --steps, --seconds,")):
            done = self.visit(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
