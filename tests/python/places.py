"""Where a job's tensors lie in tests: numpy arrays, or with MOEWAY_TEST_DEVICE=cuda torch tensors on a GPU per rank.

The reference computes with numpy; `put` brings its arrays to the rank, `get` brings results back, both raw: uint16 for
bf16, uint8 for fp8.
"""

import contextlib
import os

import numpy as np

ON_GPUS = os.environ.get("MOEWAY_TEST_DEVICE") == "cuda"


def device_of(rank):
    """The device of a rank; ranks take turns where there are more of them than GPUs."""
    if not ON_GPUS:
        return "cpu"
    import torch

    return f"cuda:{rank % torch.cuda.device_count()}"


def stream_of(rank):
    """A context with a stream of the rank's own: ranks that share a GPU wait for each other there."""
    if not ON_GPUS:
        return contextlib.nullcontext()
    import torch

    return torch.cuda.stream(torch.cuda.Stream(device_of(rank)))


class Host:
    """numpy."""

    kind = "numpy"

    def put(self, array):
        return array

    def get(self, array):
        return array

    def zeros(self, shape, like):
        return np.zeros(shape, like.dtype)

    def fill(self, array, value):
        """Every byte."""
        array.view(np.uint8)[...] = value


class Gpu:
    """torch on a CUDA device."""

    kind = "torch"

    def __init__(self, device):
        import torch

        self.torch, self.device = torch, device

    def put(self, array):
        return None if array is None else self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def get(self, tensor):
        if tensor is None:
            return None
        raw = {2: self.torch.int16, 1: self.torch.uint8}.get(tensor.element_size())
        # Types that numpy, or torch's way to it, does not have.
        names = ("bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "uint16")
        is_raw = tensor.dtype in [getattr(self.torch, name, None) for name in names]
        array = (tensor.view(raw) if is_raw else tensor).cpu().numpy()
        return array.view(np.uint16) if is_raw and raw == self.torch.int16 else array

    def zeros(self, shape, like):
        return self.torch.zeros(shape, dtype=like.dtype, device=self.device)

    def fill(self, tensor, value):
        """Every byte."""
        tensor.view(self.torch.uint8).fill_(value)


def place_of(communicator):
    """The place of this rank's tensors."""
    return Gpu(device_of(communicator.rank)) if ON_GPUS else Host()
