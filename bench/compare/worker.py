"""One rank of the measurement of one library: it checks every value, measures, checks again."""

import functools
import json
import os
import traceback

import torch
from torch import distributed

import timing
from inputs import Shape, make_batch, num_wrong
from libraries import LIBRARIES, Skipped


def _check(library, batches):
    """(wrong elements of all sets, the rows given to combine that were most)."""
    wrong, most = 0, None
    for batch in batches:
        received = library.dispatch(batch)
        rows = library.experts(received)
        wrong += num_wrong(batch, library.combine(batch, received, rows))
        if most is None or len(rows) > len(most):
            most = rows
    return wrong, most


def _measure(name, shape, rank, device, options, save):
    """One number of tokens. `save` gets {"wrong", "version", "layout", "pair_us", ...} as soon as there is something to keep."""
    on_gpu = device != "cpu"
    library = LIBRARIES[name](shape, rank, device)
    try:
        batches = [make_batch(shape, rank, number, device) for number in range(options["sets"])]
        wrong, rows = _check(library, batches)
        found = dict(version=library.version(), layout=library.layout, wrong=wrong, graph_us=None, no_graph="",
                     **timing.calls(library, batches, rows, options["pairs"], options["iterations"], on_gpu))
        found["wrong"] += _check(library, batches)[0]
        if not on_gpu:
            found["no_graph"] = "ranks are on CPUs"
        elif not library.captures:
            found["no_graph"] = "the host takes part in its calls"
        else:
            save({**found, "no_graph": "its capture or replay did not end"})
            found["graph_us"] = timing.graph(library, batches, rows, options["pairs"], options["iterations"])
            found["wrong"] += _check(library, batches)[0]
        save(found)
    finally:
        library.close()


def run(rank, name, options, directory):
    """What a process of a rank does. Keeps {"points", "skipped", "failed"} in directory/rank<r>.json as it goes on."""
    num_ranks, on_gpu = options["ranks"], options["device"] == "cuda"
    device = f"cuda:{rank}" if on_gpu else "cpu"
    said = {"points": {}, "skipped": "", "failed": ""}

    def write():
        path = os.path.join(directory, f"rank{rank}.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(said, file)
        os.replace(path + ".part", path)

    def save(num_tokens, found):
        said["points"][str(num_tokens)] = found
        write()

    try:
        if on_gpu:
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(1)
        distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", rank=rank, world_size=num_ranks,
                                       init_method=f"file://{directory}/meeting")
        for num_tokens in options["tokens"]:
            shape = Shape(num_ranks, options["experts"], options["topk"], options["hidden"], num_tokens, options["dtype"])
            _measure(name, shape, rank, device, options, functools.partial(save, num_tokens))
    except Skipped as skipped:
        said["skipped"] = str(skipped)
    except Exception:
        said["failed"] = traceback.format_exc()
    write()
    # What a library has left running must not keep the process; nor need the group say goodbye.
    os._exit(0)
