"""bench/compare on CPU ranks: what it finds right and wrong, what it leaves out and why, and what it makes of times."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare"
SMALL = ("--device", "cpu", "--experts", "8", "--topk", "3", "--hidden", "256", "--pairs", "2", "--iterations", "2", "--sets", "2")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: nothing was compared")


def compare(*words, program="compare.py"):
    """The ended process."""
    return subprocess.run([sys.executable, "-B", COMPARE / program, *words], capture_output=True, text=True, timeout=170,
                          check=False, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))


def module():
    """compare.py, which needs torch for measuring only."""
    spec = importlib.util.spec_from_file_location("compare", COMPARE / "compare.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def document(tmp_path, *words):
    """What a run that must succeed has written, its libraries by name, and its table."""
    path = tmp_path / "compare.json"
    done = compare(*SMALL, "--json", str(path), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(path.read_text())
    return made, {library["name"]: library for library in made["libraries"]}, done.stdout


@needs_torch
@pytest.mark.parametrize("dtype, measured", [
    ("bf16", ["moeway", "moeway-weights-at-dispatch", "moeway-token-major", "moeway-as-pplx", "moeway-as-deep-ep-low-latency",
              "moeway-as-deep-ep-normal", "torch-all-to-all"]),
    ("fp8", ["moeway", "moeway-as-pplx", "moeway-as-deep-ep-normal", "torch-all-to-all"]),
    ("bf16-to-fp8", ["moeway", "moeway-as-deep-ep-low-latency", "torch-all-to-all"]),
])
def test_all_values_are_right(tmp_path, dtype, measured):
    made, libraries, text = document(tmp_path, "--dtype", dtype, "--tokens", "1,5", "--libraries", ",".join(measured))
    assert made["schema"] == "moeway.compare/1" and made["options"]["dtype"] == dtype
    for name in measured:
        points = libraries[name]["points"]
        assert [point["tokens"] for point in points] == [1, 5] and not libraries[name]["skipped"]
        for point in points:
            assert point["wrong"] == 0 and point["graph_us"] is None and point["no_graph"] == "ranks are on CPUs"
            assert 0 < point["pair_us"]["p10"] <= point["pair_us"]["median"] <= point["pair_us"]["p90"]
        assert f"{name} " in text


@needs_torch
def test_what_is_not_there_is_named_and_what_is_measured_can_be_drawn(tmp_path):
    plot = tmp_path / "plot.svg"
    _, libraries, text = document(tmp_path, "--tokens", "2", "--libraries", "moeway,pplx-intranode,deep-ep-elastic", "--plot",
                                  str(plot))
    assert "pplx_kernels cannot be imported" in libraries["pplx-intranode"]["skipped"]
    assert "skipped: deep-ep-elastic: deep_ep cannot be imported" in text
    assert "moeway" in plot.read_text() and "tokens of a rank" in plot.read_text()


# A library whose second element is off by a tenth, one that raises on one rank alone, and one that never ends.
BROKEN = """
import sys, time
sys.path.insert(0, {folder!r})
import libraries

class Wrong(libraries.Moeway):
    def combine(self, batch, received, rows):
        y = super().combine(batch, received, rows)
        y[0, 1] = 1.1 * y[0, 1] + 1
        return y

class Raises(libraries.Moeway):
    def dispatch(self, batch):
        if self.rank == 1:
            raise ValueError("no more tokens")
        return super().dispatch(batch)

class Sleeps(libraries.Moeway):
    def dispatch(self, batch):
        time.sleep(600)

libraries.LIBRARIES.update(wrong=Wrong, raises=Raises, sleeps=Sleeps)
import compare
if __name__ == "__main__":
    sys.exit(compare.main())
"""


@needs_torch
@pytest.mark.parametrize("name, limit, said", [
    ("wrong", 60, "wrong"), ("raises", 15, "no more tokens"), ("sleeps", 15, "took more than 15 s")])
def test_what_goes_wrong_is_told(tmp_path, name, limit, said):
    program = tmp_path / "broken.py"
    program.write_text(BROKEN.format(folder=str(COMPARE)))
    path = tmp_path / "compare.json"
    done = compare(*SMALL, "--tokens", "3", "--libraries", name, "--limit", str(limit), "--json", str(path), program=program)
    assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr
    points = json.loads(path.read_text())["libraries"][0]["points"]
    if name == "wrong":  # One element of each set, on both ranks, before and after the timing.
        assert points[0]["wrong"] == 2 * 2 * 2
    else:
        assert points == []


def test_times_are_those_of_the_slowest_rank():
    found = module().statistics([[1.0, 5.0, 2.0, 9.0], [3.0, 4.0, 2.5, 1.0]])
    assert found == {"median": 5.0, "p10": 2.5, "p90": 9.0}


def test_a_point_that_some_rank_did_not_reach_is_left_out():
    one = {"wrong": 1, "no_graph": "", "graph_us": None, "pair_us": [2.0], "dispatch_us": [1.0], "host_us": [2.0]}
    points = module().merged([{"points": {"1": one, "8": one}}, {"points": {"1": one}}])
    assert [(point["tokens"], point["wrong"]) for point in points] == [(1, 2)]


@pytest.mark.parametrize("words, message", [
    (("--tokens", "1,none"), "'none': expected 1 or more"),
    (("--experts", "7"), "--experts is 7, expected a multiple of --ranks = 2"),
    (("--hidden", "200"), "--hidden is 200, expected a multiple of 128"),
    (("--experts", "2", "--topk", "3"), "--topk is 3, expected at most --experts = 2"),
    (("--device", "tpu"), "invalid choice: 'tpu'"),
])
def test_mistakes_are_named(words, message):
    done = compare(*words)
    assert done.returncode == 2 and message in done.stderr


@needs_torch
def test_a_library_that_is_not_known_is_named():
    done = compare("--device", "cpu", "--libraries", "moeway,nccl")
    assert done.returncode == 2 and "'nccl', expected some of moeway, " in done.stderr
