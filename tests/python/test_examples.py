"""The examples run, and say what they should."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def run(name, *arguments):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-B", EXAMPLES / name, *arguments], env=environment, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_round_gives_ten_times_its_tokens():
    assert run("round.py").splitlines() == [f"rank {rank}: y = 10 20 30 40" for rank in range(4)]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: no layer was trained")
def test_a_layer_trains_on_two_ranks_as_in_one_process():
    assert run("moe_layer.py").splitlines()[-1] == "they agree"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: no layer was run")
def test_a_layer_infers_on_two_and_three_ranks_as_in_one_process():
    for ranks in (2, 3):
        said = run("moe_inference.py", "--ranks", str(ranks)).splitlines()
        assert said[-1] == "they agree" and f"one by one on {ranks} ranks" in said[-2]
