"""`moeway doctor`, `moeway plan` and the texts of the program itself."""

import json
import unittest

from program import ProgramTest


class Doctor(ProgramTest):
    def test_host_transports_work_and_the_others_say_why_not(self):
        done = self.call("doctor", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["schema"], "moeway.doctor/1")
        self.assertGreaterEqual(result["machine"]["cores_usable"], 1)
        self.assertGreater(result["machine"]["memory_available_bytes"], 0)
        transports = {transport["name"]: transport for transport in result["transports"]}
        self.assertEqual(list(transports), ["host processes", "host threads", "nvlink", "nvshmem", "libfabric"])
        for name in ("host processes", "host threads"):
            self.assertTrue(transports[name]["works"], transports[name])
        for name in ("nvlink", "nvshmem", "libfabric"):
            self.assertFalse(transports[name]["works"])
            # Of a build with CUDA, nvlink is a part.
            self.assertIn("no GPU: " if transports[name]["in_this_build"] else "not in this build", transports[name]["why"])
            self.assertTrue(transports[name]["change"])

    def test_text(self):
        done = self.call("doctor")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^  host processes +yes +2 ranks moved \d+ rows and \d+ sums in ")
        self.assertRegex(done.stdout, r"(?m)^  nvshmem +no +not in this build")


class Plan(ProgramTest):
    def test_sizes_of_every_rank(self):
        done = self.call("plan", "--ranks", 8, "--experts", 60, "--topk", 4, "--tokens", 128, "--hidden", 100,
                         "--distinct", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["schema"], "moeway.plan/1")
        self.assertEqual([rank["num_experts"] for rank in result["ranks"]], [8] * 4 + [7] * 4)
        self.assertEqual(result["ranks"][5]["first_expert"], 39)
        for rank in result["ranks"]:
            self.assertEqual(rank["expert_capacity"], 8 * 128)
            self.assertEqual(rank["max_rows"], 8 * 128 * rank["num_experts"])
            self.assertEqual(rank["row_bytes"], 200)
            self.assertGreater(rank["heap_bytes"], 2 * 8 * 128 * 200)
        self.assertEqual(len({rank["heap_bytes"] for rank in result["ranks"]}), 1)

    def test_table(self):
        done = self.call("plan", "--ranks", 5, "--experts", 3, "--topk", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^0-2 +0-2, 1 each +640 ")
        self.assertRegex(done.stdout, r"(?m)^3-4 +none +")


class Program(ProgramTest):
    def test_version(self):
        done = self.call("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\Amoeway \d+\.\d+\.\d+\n\Z")

    def test_help_of_everything(self):
        for words in ((), ("run",), ("bench",), ("doctor",), ("plan",)):
            with self.subTest(words=words):
                done = self.call(*words, "--help")
                self.assertEqual(done.returncode, 0)
                self.assertIn("Usage: moeway", done.stdout)
                self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)


if __name__ == "__main__":
    unittest.main()
