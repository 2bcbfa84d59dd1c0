"""Tensors of callers: numpy, torch, anything with `__dlpack__` or `__cuda_array_interface__`.

numpy has no bf16, fp8 or UE8M0 of its own. An array of uint16 or uint8 holds them raw: where a config names the type,
such an array is taken as that type; `Tensor(array, dtype="bf16")` says it outright. Arrays of ml_dtypes say it
themselves.
"""

from __future__ import annotations

import sys
from typing import Any, Optional, Tuple, Union

import numpy as np

from moeway import _dlpack
from moeway._dlpack import Described
from moeway._structs import TensorStruct
from moeway.enums import DeviceType, DType, choice_of
from moeway.errors import InvalidArgumentError

__all__ = ["Tensor", "TensorLike", "struct_of"]

# numpy and torch arrays, and whatever else speaks one of the protocols.
TensorLike = Any

_BY_NAME = {
    "bfloat16": DType.BF16, "float16": DType.F16, "float32": DType.F32, "float8_e4m3fn": DType.F8_E4M3,
    "float8_e8m0fnu": DType.UE8M0, "uint8": DType.BYTES, "int32": DType.I32, "int64": DType.I64,
}
_MAX_DIMS = 3


def _from_numpy(array: np.ndarray) -> Described:
    size = array.dtype.itemsize
    if not array.dtype.isnative:
        raise TypeError(f"elements of {array.dtype} are not in this machine's byte order")
    if any(stride % size for stride in array.strides):
        raise TypeError(f"strides {array.strides} are no multiples of an element's {size} bytes")
    return Described(array.ctypes.data, _BY_NAME.get(array.dtype.name), array.dtype.name, size, DeviceType.CPU, 0,
                     array.shape, tuple(stride // size for stride in array.strides), array.flags.writeable, array)


def _from_torch(tensor: Any) -> Described:
    # Not through DLPack: some of its versions know neither fp8 nor tensors that require gradients.
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise TypeError(f"it is on device {tensor.device}, expected cpu or cuda")
    name = str(tensor.dtype).rsplit(".", 1)[-1]
    device = DeviceType.CUDA if kind == "cuda" else DeviceType.CPU
    return Described(tensor.data_ptr(), _BY_NAME.get(name), name, tensor.element_size(), device,
                     tensor.device.index or 0, tuple(tensor.shape), tuple(tensor.stride()), True, tensor)


def _from_cuda_array_interface(array: Any, device_index: int) -> Described:
    interface = array.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    data, read_only = interface["data"]
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        steps = _dlpack.packed_strides(list(shape))
    else:
        steps = [stride // dtype.itemsize for stride in strides]
    return Described(data, _BY_NAME.get(dtype.name), dtype.name, dtype.itemsize, DeviceType.CUDA, device_index, shape,
                     tuple(steps), not read_only, array)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _describe(value: Any, device_index: int) -> Described:
    if isinstance(value, np.ndarray):
        return _from_numpy(value)
    if _is_torch(value):
        return _from_torch(value)
    if hasattr(value, "__dlpack__"):
        return _dlpack.read(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_cuda_array_interface(value, device_index)
    raise TypeError(
        f"a {type(value).__name__} is no numpy array and has neither __dlpack__ nor __cuda_array_interface__")


class Tensor:
    """A view of a caller's memory, of 1 to 3 dimensions, which it keeps alive. Nothing is copied.

    `dtype` says what raw elements (uint16, uint8) are; it must be as many bytes wide as they are. `device_index` is
    needed only for `__cuda_array_interface__`, which does not name its device.
    """

    def __init__(self, value: TensorLike, dtype: Union[DType, str, None] = None, *, device_index: int = 0) -> None:
        self._describe("the tensor", value, dtype if dtype is None else choice_of(DType, dtype, "dtype"), device_index)
        if dtype is not None and self.dtype != choice_of(DType, dtype, "dtype"):
            raise InvalidArgumentError(f"dtype is {dtype}, but the elements are {self._described.dtype_name}")

    def _describe(self, name: str, value: TensorLike, expected: Optional[DType], device_index: int) -> None:
        try:
            self._described = described = _describe(value, device_index)
        except (TypeError, BufferError) as error:
            raise InvalidArgumentError(f"{name} cannot be used as a tensor: {error}") from error
        raw = described.dtype in (None, DType.BYTES)
        fits = expected is not None and expected.element_bytes == described.element_bytes
        dtype = expected if raw and fits else described.dtype
        if dtype is None:
            wanted = "bf16, f16, f32, f8_e4m3, ue8m0, bytes, i32 or i64" if expected is None else expected.name.lower()
            raise InvalidArgumentError(f"{name} has elements of type {described.dtype_name}, expected {wanted}")
        self.dtype: DType = dtype

    @classmethod
    def named(cls, name: str, value: TensorLike, expected: Optional[DType], device_index: int) -> "Tensor":
        """As the constructor; messages call it `name`, and raw elements as wide as `expected` are of that type."""
        if isinstance(value, Tensor):
            return value
        tensor = cls.__new__(cls)
        tensor._describe(name, value, expected, device_index)
        return tensor

    @property
    def value(self) -> Any:
        """What the tensor was made of."""
        owner = self._described.owner
        return owner[0] if isinstance(owner, tuple) else owner

    @property
    def shape(self) -> Tuple[int, ...]:
        """Elements along each dimension."""
        return self._described.shape

    @property
    def device_type(self) -> DeviceType:
        """CPU or CUDA."""
        return self._described.device_type

    @property
    def device_index(self) -> int:
        """As this process numbers devices."""
        return self._described.device_index

    @property
    def writable(self) -> bool:
        """False if its owner forbids writing."""
        return self._described.writable

    def to_struct(self, name: str) -> TensorStruct:
        """The moeway_tensor. Raises InvalidArgumentError, which calls it `name`, for more than 3 dimensions."""
        described = self._described
        if not 1 <= len(described.shape) <= _MAX_DIMS:
            raise InvalidArgumentError(f"{name} has {len(described.shape)} dimensions, expected 1 to {_MAX_DIMS}")
        struct = TensorStruct(described.data, self.dtype, described.device_type, described.device_index,
                              len(described.shape))
        for i, (size, stride) in enumerate(zip(described.shape, described.strides)):
            struct.shape[i], struct.strides[i] = size, stride
        return struct


def struct_of(name: str, value: Optional[TensorLike], expected: Optional[DType], device_index: int,
              write: bool = False) -> TensorStruct:
    """The moeway_tensor of an argument; None gives one without dimensions: there is no tensor.

    The struct keeps the memory alive. Raises InvalidArgumentError where `value` is no tensor, or is to be written and
    must not be.
    """
    if value is None:
        return TensorStruct()
    tensor = Tensor.named(name, value, expected, device_index)
    if write and not tensor.writable:
        raise InvalidArgumentError(f"{name} is read-only, expected an output that can be written")
    struct = tensor.to_struct(name)
    struct.owner = tensor
    return struct
