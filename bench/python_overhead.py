"""What Python adds to a dispatch and a combine: the calls of one rank with the library's functions replaced by one that does nothing.

usage: python_overhead.py [--tensors torch|numpy] [--calls N]

One rank on the CPU, seven tensors for dispatch and two for combine, the same ones at every call, as an engine with graphs or
fixed buffers has them, and once with new inputs (x, topk_idx, topk_weights, rows) each time. Prints microseconds a pair, the
least of 20 runs: what is measured does not wait for anything, so that whatever is more is the machine's.
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"))

import moeway  # noqa: E402
import numpy as np  # noqa: E402
from moeway import _library  # noqa: E402

E, K, H, M, RUNS = 8, 2, 128, 4, 20
REPLACED = ("moeway_dispatch", "moeway_combine")


def least(calls, pair, inputs):
    """Microseconds of a pair; `inputs` are taken in turn."""
    best = float("inf")
    for _ in range(RUNS):
        begin = time.perf_counter()
        for i in range(calls):
            pair(*inputs[i % len(inputs)])
        best = min(best, time.perf_counter() - begin)
    return best / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tensors", choices=("torch", "numpy"), default="torch")
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    if options.tensors == "torch":
        import torch

        of = torch.from_numpy
        bf16 = lambda array: of(array.astype(np.int16)).view(torch.bfloat16)  # noqa: E731
    else:
        of, bf16 = np.copy, lambda array: array.astype(np.uint16)
    group = moeway.ThreadGroup(1)
    with moeway.Communicator(moeway.Bootstrap.threads(group, 0)) as communicator, \
            moeway.AllToAll(communicator, num_experts=E, topk=K, hidden=H, max_tokens=M) as all_to_all:
        output = all_to_all.allocate_output(options.tensors)
        y = bf16(np.zeros((M, H)))

        def inputs():
            experts = np.tile(np.arange(K, dtype=np.int64), (M, 1))
            return bf16(np.zeros((M, H))), of(experts), of(np.ones((M, K), np.float32)), bf16(np.zeros(tuple(output.x.shape)))

        def pair(x, topk_idx, topk_weights, rows):
            routing, _ = all_to_all.dispatch(x, topk_idx, topk_weights, output=output)
            all_to_all.combine(routing, rows, y=y)

        originals = {name: getattr(_library.lib, name) for name in REPLACED}
        for name in REPLACED:
            setattr(_library.lib, name, lambda *_: 0)
        same, new = least(options.calls, pair, [inputs()]), least(options.calls, pair, [inputs() for _ in range(64)])
        for name, function in originals.items():
            setattr(_library.lib, name, function)
        print(f"{options.tensors}: {same:.2f} us a pair with the same tensors, {new:.2f} us with new inputs")


if __name__ == "__main__":
    main()
