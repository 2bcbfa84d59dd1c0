"""How long pairs of dispatch and combine take on one rank: in a graph, called one by one, and on the host.

All times are microseconds a pair, one for each iteration: the maximum over ranks is taken for each of them (compare.py).
"""

import time

import torch
from torch import distributed


def meet():
    """Waits for all ranks, on the host: no kernel is in the way of those that are measured."""
    distributed.all_reduce(torch.zeros(1))


def _with_events(function, count):
    """Runs function(i) for i below count; (its time by the device's clock, the host's) in us."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    meet()
    begin = time.perf_counter()
    first.record()
    for i in range(count):
        function(i)
    last.record()
    host = time.perf_counter() - begin
    torch.cuda.synchronize()
    return first.elapsed_time(last) * 1e3, host * 1e6


def _on_host(function, count):
    meet()
    begin = time.perf_counter()
    for i in range(count):
        function(i)
    took = (time.perf_counter() - begin) * 1e6
    return took, took


def calls(library, batches, rows, pairs, iterations, on_gpu):
    """Called one by one, nobody waiting between them: {"pair_us", "dispatch_us", "host_us"}: lists over iterations.

    dispatch_us is of dispatches without combines; host_us is how long the calls take to return.
    """
    timed = _with_events if on_gpu else _on_host

    def pair(i):
        batch = batches[i % len(batches)]
        library.combine(batch, library.dispatch(batch), rows)

    def dispatch(i):
        library.dispatch(batches[i % len(batches)])

    found = {"pair_us": [], "dispatch_us": [], "host_us": []}
    for i in range(iterations + 2):  # The first ones warm up.
        took, host = timed(pair, pairs)
        alone, _ = timed(dispatch, pairs)
        if i >= 2:
            found["pair_us"].append(took / pairs)
            found["host_us"].append(host / pairs)
            found["dispatch_us"].append(alone / pairs)
    return found


def graph(library, batches, rows, pairs, iterations):
    """Many pairs captured in one graph, which is replayed: a list over iterations."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for batch in batches:
            library.combine(batch, library.dispatch(batch), rows)
    torch.cuda.synchronize()
    meet()
    captured = torch.cuda.CUDAGraph()
    # What torch's own threads ask of the device meanwhile must not spoil the capture.
    with torch.cuda.graph(captured, stream=stream, capture_error_mode="thread_local"):
        for i in range(pairs):
            batch = batches[i % len(batches)]
            library.combine(batch, library.dispatch(batch), rows)
    found = [_with_events(lambda _: captured.replay(), 1)[0] / pairs for _ in range(iterations + 2)]
    return found[2:]
