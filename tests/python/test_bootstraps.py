"""Every way for ranks to meet, and what a Python all-gather may do wrong."""

import os
import socket
import threading
import time

import moeway
import pytest
from ranks import outcome_of


def run_ranks(num_ranks, work):
    """work(rank) on threads of its own; the outcomes."""
    outcomes = [None] * num_ranks
    threads = [threading.Thread(target=lambda r=r: outcomes.__setitem__(r, outcome_of(work, r)), daemon=True)
               for r in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs"
    return outcomes


def check_job(bootstrap):
    with moeway.Communicator(bootstrap, timeout_ms=20000) as communicator:
        communicator.barrier()
        return communicator.rank, communicator.size


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


class Gather:
    """An all-gather between threads, in place of MPI's or torch's; it has mpi4py's names for what it has in common."""

    def __init__(self, num_ranks):
        self.num_ranks, self.parts = num_ranks, [None] * num_ranks
        self.barrier = threading.Barrier(num_ranks, timeout=20)

    def of(self, rank):
        def all_gather(data):
            self.parts[rank] = data
            self.barrier.wait()
            gathered = list(self.parts)
            self.barrier.wait()
            return gathered

        return all_gather


class Mpi:
    """What Bootstrap.mpi uses of an mpi4py communicator."""

    def __init__(self, gather, rank):
        self.rank, self.size, self.allgather = rank, gather.num_ranks, gather.of(rank)

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size


def test_threads_meet():
    group = moeway.ThreadGroup(3)
    outcomes = run_ranks(3, lambda rank: check_job(moeway.Bootstrap.threads(group, rank)))
    assert [result for _, result, _ in outcomes] == [(0, 3), (1, 3), (2, 3)]


def test_processes_of_a_host_meet_in_a_directory(tmp_path):
    directory = tmp_path / "meeting"
    directory.mkdir(mode=0o700)
    outcomes = run_ranks(2, lambda rank: check_job(moeway.Bootstrap.local(directory, rank, 2)))
    assert [result for _, result, _ in outcomes] == [(0, 2), (1, 2)]


def test_ranks_meet_at_an_address():
    port = free_port()
    outcomes = run_ranks(2, lambda rank: check_job(moeway.Bootstrap.tcp("127.0.0.1", port, "secret", rank, 2)))
    assert [result for _, result, _ in outcomes] == [(0, 2), (1, 2)]


def test_a_process_without_a_launcher_is_alone(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("MOEWAY_RANK", "MOEWAY_WORLD", "RANK", "WORLD_SIZE", "OMPI_", "SLURM_")):
            monkeypatch.delenv(name)
    assert check_job(moeway.Bootstrap.env()) == (0, 1)


def test_ranks_meet_through_an_all_gather_of_their_own():
    gather = Gather(3)
    outcomes = run_ranks(3, lambda rank: check_job(moeway.Bootstrap.callback(rank, 3, gather.of(rank))))
    assert [result for _, result, _ in outcomes] == [(0, 3), (1, 3), (2, 3)]


def test_ranks_meet_through_mpi():
    gather = Gather(2)
    outcomes = run_ranks(2, lambda rank: check_job(moeway.Bootstrap.mpi(Mpi(gather, rank))))
    assert [result for _, result, _ in outcomes] == [(0, 2), (1, 2)]


def test_ranks_meet_through_mpi4py():
    try:
        from mpi4py import MPI as mpi
    except (ImportError, RuntimeError):
        pytest.skip("mpi4py or its MPI is not installed: Bootstrap.mpi ran with a stand-in only")
    assert check_job(moeway.Bootstrap.mpi(mpi.COMM_SELF)) == (0, 1)


def test_an_all_gather_that_raises_fails_the_call_with_its_cause():
    def all_gather(_data):
        raise KeyError("no such peer")

    with pytest.raises(moeway.PeerLostError, match="the caller's all-gather returned 1") as caught:
        moeway.Communicator(moeway.Bootstrap.callback(0, 2, all_gather))
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_all_gather_that_raises_later_fails_that_creation():
    calls = []

    def all_gather(data):
        calls.append(data)
        if failing:
            raise OSError("the network is gone")
        return [data]

    failing = []
    communicator = moeway.Communicator(moeway.Bootstrap.callback(0, 1, all_gather))
    assert calls
    failing.append(True)
    with pytest.raises(moeway.PeerLostError) as caught:
        moeway.AllToAll(communicator, num_experts=1, topk=1, hidden=1, max_tokens=1)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("parts, message", [
    (lambda data: [data], "all_gather returned parts of"),
    (lambda data: [data, data[:-1]], "all_gather returned parts of"),
    (lambda data: None, "NoneType"),
])
def test_an_all_gather_that_gives_something_else_is_found_out(parts, message):
    with pytest.raises(moeway.PeerLostError) as caught:
        moeway.Communicator(moeway.Bootstrap.callback(0, 2, parts))
    assert message in str(caught.value.__cause__)


def test_a_rank_whose_all_gather_raises_does_not_keep_the_others(tmp_path):
    """The others wait in the caller's own all-gather, as long as that does; then they fail as well."""
    gather = Gather(2)
    gather.barrier = threading.Barrier(2, timeout=1)

    def work(rank):
        def all_gather(data):
            if rank == 1:
                raise RuntimeError("rank 1 fails")
            return gather.of(rank)(data)

        return check_job(moeway.Bootstrap.callback(rank, 2, all_gather))

    start = time.monotonic()
    outcomes = run_ranks(2, work)
    assert time.monotonic() - start < 20
    assert all(isinstance(error, moeway.PeerLostError) for _, error, _ in outcomes)
    assert isinstance(outcomes[0][1].__cause__, threading.BrokenBarrierError)
    assert isinstance(outcomes[1][1].__cause__, RuntimeError)


@pytest.mark.parametrize("make, message", [
    (lambda: moeway.ThreadGroup(0), "0"),
    (lambda: moeway.Bootstrap.threads(moeway.ThreadGroup(2), 2), "2"),
    (lambda: moeway.Bootstrap.local("/nowhere/at/all", 0, 2), "/nowhere/at/all"),
    (lambda: moeway.Bootstrap.tcp("127.0.0.1", 0, "s", 0, 2), "port is 0"),
    (lambda: moeway.Bootstrap.callback(2, 2, lambda data: [data, data]), "2"),
    (lambda: moeway.Bootstrap.callback(0, 1, 7), "all_gather is a int, expected a function"),
])
def test_a_wrong_argument_is_named(make, message):
    with pytest.raises(moeway.MoewayError) as caught:
        make()
    assert message in str(caught.value)
