"""Ranks that die or hang, and signals: the command names who it was, ends in time and leaves nothing behind."""

import json
import os
import random
import signal
import time
import unittest

from program import LIMIT_S, ProgramTest, without_sanitizer_notes

# On CPU ranks: to look for GPUs takes a process of its own, which is no rank.
ENDLESS = ("run", "--device", "cpu", "--ranks", 4, "--tokens", 8, "--hidden", 32, "--rounds", 1_000_000_000)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Failure(ProgramTest):
    def started(self, *words, ranks=4):
        """A running command and the processes of its ranks, once rounds are under way."""
        process = self.start(*ENDLESS, *words)
        limit = time.monotonic() + LIMIT_S
        # The directory in which the ranks meet is gone as soon as they have met.
        while len(children_of(process.pid)) < ranks or os.listdir(self.meeting):
            self.assertLess(time.monotonic(), limit)
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        time.sleep(0.2)
        return process, children_of(process.pid)

    def finish(self, process, ranks, within_s):
        start = time.monotonic()
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertLess(time.monotonic() - start, within_s)
        self.assertEqual([pid for pid in ranks if is_running(pid)], [])
        return out, without_sanitizer_notes(err)

    def test_a_killed_rank_is_named(self):
        process, ranks = self.started()
        os.kill(ranks[2], signal.SIGKILL)
        _, err = self.finish(process, ranks, within_s=30)
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(err, r"\Amoeway run: rank 2: its process \d+ was killed by signal 9 \(Killed\); "
                              r"last seen in round \d+, \w+\n")
        self.assertIn("FAILED: 4 of 4 ranks failed", err)

    def test_a_rank_that_hangs_is_named(self):
        process, ranks = self.started("--timeout-ms", 1000)
        os.kill(ranks[1], signal.SIGSTOP)
        _, err = self.finish(process, ranks, within_s=40)
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(err, r"\Amoeway run: rank 1: had to be ended, as it did not end by itself when rank \d had "
                              r"failed; last seen in round \d+, \w+\n")

    def test_all_ranks_hang(self):
        process, ranks = self.started("--timeout-ms", 100)
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        _, err = self.finish(process, ranks, within_s=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("rank 0: had to be ended, as no rank had got on for 10 s", err)

    def test_json_tells_of_a_failure(self):
        path = self.folder + "/result.json"
        process, ranks = self.started("--json", path)
        os.kill(ranks[3], signal.SIGSEGV)
        self.finish(process, ranks, within_s=30)
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        self.assertFalse(result["ok"])
        self.assertEqual((result["failures"][0]["rank"], result["failures"][0]["kind"]), (3, "died"))

    def test_ranks_as_threads(self):
        process, ranks = self.started("--ranks-as", "threads", ranks=1)
        os.kill(ranks[0], signal.SIGKILL)
        _, err = self.finish(process, ranks, within_s=30)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("rank 3: its process", err)

    def test_signals_end_the_command_and_its_ranks(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                process, ranks = self.started()
                process.send_signal(number)
                _, err = self.finish(process, ranks, within_s=20)
                self.assertEqual(process.returncode, -number)
                self.assertIn(f"signal {int(number)} came", err)

    def test_ranks_do_not_outlive_a_killed_command(self):
        process, ranks = self.started()
        process.kill()
        self.finish(process, [], within_s=20)
        limit = time.monotonic() + 20
        while any(is_running(pid) for pid in ranks):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)

    def test_a_rank_killed_at_any_moment(self):
        seed = random.randrange(1 << 30)
        chance = random.Random(seed)
        for attempt in range(15):
            with self.subTest(seed=seed, attempt=attempt):
                process = self.start(*ENDLESS)
                while not (ranks := children_of(process.pid)):
                    time.sleep(0.001)
                time.sleep(chance.uniform(0, 0.1))
                ranks = children_of(process.pid)
                os.kill(chance.choice(ranks), signal.SIGKILL)
                _, err = self.finish(process, ranks, within_s=40)
                self.assertEqual(process.returncode, 1, err)
                self.assertIn("was killed by signal 9", err)
                self.assertEqual(os.listdir(self.meeting), [])


if __name__ == "__main__":
    unittest.main()
