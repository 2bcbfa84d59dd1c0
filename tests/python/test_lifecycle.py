"""The ends of ranks: of the interpreter, by an exception, in a fork. Exit codes stay what they are, nothing is printed,
nothing is left, and nobody waits."""

import os
import subprocess
import sys
import tempfile
import time

import moeway
import numpy as np
import pytest
from ranks import run_processes, thread_outcomes

CONFIG = dict(num_experts=4, topk=2, hidden=8, max_tokens=3, dispatch_dtype="f32", row_dtype="f32", output_dtype="f32",
              timeout_ms=20000)

RANK = """
import sys, time
import moeway, numpy as np
directory, rank, ending = sys.argv[1], int(sys.argv[2]), sys.argv[3]
communicator = moeway.Communicator(moeway.Bootstrap.local(directory, rank, 3), timeout_ms=20000)
all_to_all = moeway.AllToAll(communicator, {config})
x, ids = np.full((2, 8), rank + 1, np.float32), np.tile(np.int32([rank, 3 - rank]), (2, 1))
routing, received = all_to_all.dispatch(x, ids, np.ones((2, 2), np.float32))
assert (all_to_all.combine(routing, received.x) == 2 * x).all()
if ending == "cycle":
    class Holder: pass
    holder = Holder()
    holder.itself, holder.held = holder, (communicator, all_to_all)
    del communicator, all_to_all, holder
elif ending == "code":
    sys.exit(7)
elif ending == "early" and rank > 0:
    time.sleep(2)
elif ending == "raise":
    if rank == 1:
        raise KeyError("a fault of the caller's own")
    all_to_all.dispatch(x, ids, np.ones((2, 2), np.float32))
elif ending == "view":
    kept = received, all_to_all
    all_to_all.close()
    assert (received.x[received.num_rows > 0, 0] > 0).all()
"""


def end_of_ranks(ending):
    """The ranks as programs of their own: (exit code, standard error) of each, and what they have left in directories."""
    fields = ", ".join(f"{name}={value!r}" for name, value in CONFIG.items())
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    environment.pop("XDG_RUNTIME_DIR", None)
    with tempfile.TemporaryDirectory(prefix="moeway-test-") as meeting, \
            tempfile.TemporaryDirectory(prefix="moeway-test-") as temporary:
        environment["TMPDIR"] = temporary
        ranks = [subprocess.Popen([sys.executable, "-B", "-c", RANK.format(config=fields), meeting, str(rank), ending],
                                  env=environment, stderr=subprocess.PIPE, text=True) for rank in range(3)]
        errors = [rank.communicate(timeout=100)[1] for rank in ranks]
        left = os.listdir(meeting) + os.listdir(temporary)
    return [(rank.returncode, error) for rank, error in zip(ranks, errors)], left


@pytest.mark.parametrize("ending, code", [("nothing", 0), ("cycle", 0), ("early", 0), ("view", 0), ("code", 7)])
def test_an_interpreter_ends_well_without_close(ending, code):
    ends, left = end_of_ranks(ending)
    assert ends == [(code, "")] * 3
    assert left == []


def test_an_exception_that_ends_a_rank_is_heard_by_the_others():
    start = time.monotonic()
    ends, left = end_of_ranks("raise")
    assert time.monotonic() - start < 15, "they waited for their limit"
    assert [code for code, _ in ends] == [1, 1, 1]
    assert "KeyError" in ends[1][1] and "moeway" not in ends[1][1].splitlines()[-1]
    for rank in (0, 2):
        assert "PeerLostError" in ends[rank][1] and "rank 1" in ends[rank][1]
    assert left == []


@pytest.mark.parametrize("fields, error", [(dict(CONFIG, layout="packed"), moeway.InvalidArgumentError),
                                           (dict(CONFIG, num_experts=2**40), moeway.InvalidArgumentError),
                                           (dict(CONFIG, experts=4), TypeError)])
def test_a_config_that_one_rank_cannot_make_is_heard_by_the_others(fields, error):
    """It is found before the library is called."""

    def job(communicator):
        start = time.monotonic()
        with pytest.raises(error if communicator.rank == 1 else moeway.InvalidArgumentError) as caught:
            moeway.AllToAll(communicator, **(fields if communicator.rank == 1 else CONFIG))
        assert time.monotonic() - start < 10
        if communicator.rank != 1:
            assert "rank 1: config is null" in str(caught.value)
        moeway.AllToAll(communicator, **CONFIG).close()

    for ok, _, text in thread_outcomes(3, job):
        assert ok, text


def test_a_device_that_one_rank_misnames_is_heard_by_the_others():
    group = moeway.ThreadGroup(2)
    odd = moeway.Bootstrap.threads(group, 1)
    with pytest.raises(moeway.InvalidArgumentError, match="tpu"):
        moeway.Communicator(odd, device="tpu")
    start = time.monotonic()
    with pytest.raises(moeway.PeerLostError, match="rank 1"):
        moeway.Communicator(moeway.Bootstrap.threads(group, 0), timeout_ms=60000)
    assert time.monotonic() - start < 10


def forks(communicator):
    """A rank that forks children, which end in every way that Python has; it goes on all the same."""
    def check(all_to_all):
        x = np.full((2, 8), 3, np.float32)
        routing, received = all_to_all.dispatch(x, np.tile(np.int32([0, 3]), (2, 1)), np.ones((2, 2), np.float32))
        assert (all_to_all.combine(routing, received.x) == 6).all()

    all_to_all = moeway.AllToAll(communicator, **CONFIG)
    for way in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for call in (all_to_all.status, communicator.barrier):
                    try:
                        call()
                    except moeway.WrongStateError as refused:
                        code = 0 if "fork" in str(refused) else 2
                if way == 1:
                    all_to_all.close()
                    communicator.close()
                if way == 2:
                    del all_to_all
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        check(all_to_all)
        communicator.barrier()
        with moeway.AllToAll(communicator, **CONFIG) as another:
            check(another)


def test_a_fork_does_not_disturb_its_parents_job():
    run_processes(3, forks)
