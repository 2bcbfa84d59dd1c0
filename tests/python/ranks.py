"""Runs a job's ranks in tests, as threads of this process or as processes. A job is a function of a communicator."""

import multiprocessing
import tempfile
import threading
import traceback

import moeway
from places import device_of, stream_of

LIMIT_S = 120  # A hang is a failure.


class Failed(Exception):
    """Ranks of a job raised; the message has their tracebacks."""


def _checked(outcomes):
    """The results, if no rank raised."""
    raised = [f"rank {rank}: {text}" for rank, (ok, _, text) in enumerate(outcomes) if not ok]
    if raised:
        raise Failed("\n".join(raised))
    return [result for _, result, _ in outcomes]


def outcome_of(function, *arguments):
    """(whether it returned, the result or the exception, its traceback)."""
    try:
        return True, function(*arguments), ""
    except Exception as error:
        return False, error, traceback.format_exc()


def thread_outcomes(num_ranks, job, *arguments, timeout_ms=30000):
    """Runs job(communicator, *arguments) on every rank, each a thread. Gives what outcome_of gives, per rank."""
    group = moeway.ThreadGroup(num_ranks)
    outcomes = [None] * num_ranks

    def work(rank):
        bootstrap = moeway.Bootstrap.threads(group, rank)
        with stream_of(rank), \
                moeway.Communicator(bootstrap, device=device_of(rank), timeout_ms=timeout_ms) as communicator:
            return job(communicator, *arguments)

    def run(rank):
        outcomes[rank] = outcome_of(work, rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        thread.join(LIMIT_S)
        assert not thread.is_alive(), f"rank {rank} hangs"
    return outcomes


def run_threads(num_ranks, job, *arguments):
    """As thread_outcomes. Gives the results; raises Failed if a rank raised."""
    return _checked(thread_outcomes(num_ranks, job, *arguments))


def _process(pipe, directory, rank, num_ranks, job, arguments):
    def work():
        bootstrap = moeway.Bootstrap.local(directory, rank, num_ranks)
        with stream_of(rank), moeway.Communicator(bootstrap, device=device_of(rank)) as communicator:
            return job(communicator, *arguments)

    ok, result, text = outcome_of(work)
    pipe.send((ok, result if ok else None, text))


def run_processes(num_ranks, job, *arguments):
    """As run_threads, but each rank is a process; job and arguments must be picklable."""
    # A server that has loaded everything already starts processes quickly, and forks no threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["moeway", "jobs"])
    with tempfile.TemporaryDirectory(prefix="moeway-test-") as directory:
        pipes, processes = [], []
        for rank in range(num_ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=_process, args=(theirs, directory, rank, num_ranks, job, arguments))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        outcomes = []
        for rank, (pipe, process) in enumerate(zip(pipes, processes)):
            assert pipe.poll(LIMIT_S), f"rank {rank} hangs"
            try:
                outcomes.append(pipe.recv())
            except EOFError:
                outcomes.append((False, None, "its process ended without a word"))
            process.join(LIMIT_S)
            if process.is_alive():
                process.kill()
    return _checked(outcomes)
