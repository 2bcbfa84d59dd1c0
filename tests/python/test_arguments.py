"""moeway._arguments: what an argument remembers of the tensor before is never taken for the one that is given."""

import ctypes
import random
import weakref

import moeway
import numpy as np
import pytest
from moeway._arguments import Argument
from moeway._structs import InputStruct, TensorStruct
from moeway.enums import DType
from moeway.tensor import struct_of
from ranks import run_threads
from test_tensors import IDX, WEIGHTS, OnlyDlpack

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed: its tensors were not changed in place")


def bytes_of(struct):
    return ctypes.string_at(ctypes.addressof(struct), ctypes.sizeof(struct))


def check(argument, value, expected=DType.BF16):
    """The struct is what it is without any memory of earlier values."""
    argument.set(value)
    assert bytes_of(argument.struct) == bytes_of(struct_of("x", value, expected, 0))


def arrays():
    wide = np.zeros((6, 12), np.float32)
    return [wide, wide[::2], wide[:, ::3], wide[::-1], wide.T, np.zeros((6, 12), np.float32), np.zeros((6, 12), np.int32),
            np.zeros((6, 12), np.uint16), np.zeros(5, np.uint8), np.zeros((2, 3, 4), np.float16), np.zeros((0, 12), np.float32),
            None, OnlyDlpack(wide), moeway.Tensor(np.zeros((6, 12), np.uint16), "bf16")]


def test_any_order_of_arrays():
    chance, values = random.Random(5), arrays()
    argument = Argument("x", TensorStruct(), DType.BF16, 0)
    for _ in range(2000):
        check(argument, chance.choice(values))


def test_an_array_that_is_changed_in_place():
    array = np.zeros((4, 6), np.float32)
    argument = Argument("x", TensorStruct(), DType.BF16, 0)
    check(argument, array)
    array.shape = (6, 4)
    check(argument, array)
    array.dtype = np.int32
    check(argument, array)
    array.resize((2, 3), refcheck=False)  # Its memory may have moved.
    check(argument, array)


def test_an_output_that_must_not_be_written_any_more():
    array = np.zeros((4, 6), np.float32)
    argument = Argument("y", TensorStruct(), None, 0, write=True)
    argument.set(array)
    array.flags.writeable = False
    with pytest.raises(moeway.InvalidArgumentError, match="y is read-only"):
        argument.set(array)
    array.flags.writeable = True
    argument.set(array)
    assert argument.struct.data == array.ctypes.data


def test_what_is_no_tensor_leaves_nothing_behind():
    array = np.zeros((4, 6), np.float32)
    argument = Argument("x", TensorStruct(), None, 0)
    argument.set(array)
    for wrong in ("text", np.zeros((1, 1, 1, 1), np.float32), np.zeros((4, 6), np.float64)):
        with pytest.raises(moeway.InvalidArgumentError, match="^x "):
            argument.set(wrong)
        check(argument, array)


def test_an_argument_writes_its_part_of_a_struct_alone():
    given = InputStruct()
    before = bytes_of(given)
    argument = Argument("scales", given.scales, None, 0)
    check(argument, np.zeros((4, 6), np.float32))
    argument.set(None)
    assert bytes_of(given) == before


def test_a_call_keeps_no_tensor():
    def job(communicator):
        with moeway.AllToAll(communicator, num_experts=2, topk=1, hidden=4, max_tokens=3) as all_to_all:
            x = np.zeros((3, 4), np.uint16)
            routing, output = all_to_all.dispatch(x, IDX, WEIGHTS)
            y = all_to_all.combine(routing, output.x)
            watched = [weakref.ref(array) for array in (x, output.x, output.num_rows, y)]
            del x, output, y
            assert [ref() for ref in watched] == [None] * 4

    run_threads(1, job)


@needs_torch
def test_a_torch_tensor_that_is_changed_in_place():
    tensor = torch.zeros(4, 6)
    argument = Argument("x", TensorStruct(), DType.BF16, 0)
    other = torch.ones(24)
    changes = (lambda: tensor.t_(), lambda: tensor.resize_(2, 3), lambda: tensor.resize_(50, 60),
               lambda: tensor.set_(other.untyped_storage(), 4, (2, 5), (10, 2)), lambda: tensor.unsqueeze_(0),
               lambda: setattr(tensor, "data", torch.zeros(1, 2, 5, dtype=torch.int32)))
    check(argument, tensor)
    for change in changes:
        change()
        check(argument, tensor)


@needs_torch
def test_any_order_of_torch_tensors_and_arrays():
    chance = random.Random(6)
    wide = torch.zeros(6, 12)
    values = arrays() + [wide, wide[::2], wide[:, ::3], wide.t(), torch.zeros(6, 12), torch.zeros(6, 12, dtype=torch.bfloat16),
                         torch.zeros(6, 12, dtype=torch.int64), torch.nn.Parameter(wide), torch.zeros(0, 12)]
    argument = Argument("x", TensorStruct(), DType.BF16, 0)
    for _ in range(2000):
        check(argument, chance.choice(values))
