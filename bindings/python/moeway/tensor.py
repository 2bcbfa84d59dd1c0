"""Tensors of callers: numpy, torch, anything with `__dlpack__` or `__cuda_array_interface__`.

numpy has no bf16, fp8 or UE8M0 of its own. An array of uint16 or uint8 holds them raw: where a config names the type,
such an array is taken as that type; `Tensor(array, dtype="bf16")` says it outright. Arrays of ml_dtypes say it
themselves.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np

from moeway import _dlpack
from moeway._dlpack import Described
from moeway._structs import TensorStruct
from moeway.enums import DeviceType, DType, choice_of
from moeway.errors import InvalidArgumentError

__all__ = ["Tensor", "TensorLike", "is_torch", "struct_of"]

# numpy and torch arrays, and whatever else speaks one of the protocols.
TensorLike = Any

_BY_NAME = {
    "bfloat16": DType.BF16, "float16": DType.F16, "float32": DType.F32, "float8_e4m3fn": DType.F8_E4M3,
    "float8_e8m0fnu": DType.UE8M0, "uint8": DType.BYTES, "int32": DType.I32, "int64": DType.I64,
}
_MAX_DIMS = 3


# A call describes up to a dozen tensors: names of types are looked up once a type.
_known_types: Dict[Any, Tuple[Optional[DType], str]] = {}


def _type_of(dtype: Any) -> Tuple[Optional[DType], str]:
    """The DType of a numpy or torch dtype, None for raw elements, and what it is called."""
    known = _known_types.get(dtype)
    if known is None:
        name = getattr(dtype, "name", None) or str(dtype).rsplit(".", 1)[-1]
        known = _known_types[dtype] = _BY_NAME.get(name), name
    return known


def _from_numpy(array: np.ndarray) -> Described:
    size, strides = array.itemsize, array.strides
    if not array.dtype.isnative:
        raise TypeError(f"elements of {array.dtype} are not in this machine's byte order")
    for stride in strides:
        if stride % size:
            raise TypeError(f"strides {strides} are no multiples of an element's {size} bytes")
    dtype, name = _type_of(array.dtype)
    data, read_only = array.__array_interface__["data"]
    return Described(data, dtype, name, size, DeviceType.CPU, 0, array.shape,
                     tuple([stride // size for stride in strides]), not read_only, array)


def _from_torch(tensor: Any) -> Described:
    # Not through DLPack: some of its versions know neither fp8 nor tensors that require gradients.
    device = tensor.device
    if device.type not in ("cpu", "cuda"):
        raise TypeError(f"it is on device {device}, expected cpu or cuda")
    dtype, name = _type_of(tensor.dtype)
    return Described(tensor.data_ptr(), dtype, name, tensor.element_size(),
                     DeviceType.CUDA if device.type == "cuda" else DeviceType.CPU, device.index or 0,
                     tuple(tensor.shape), tensor.stride(), True, tensor)


def _from_cuda_array_interface(array: Any, device_index: int) -> Described:
    interface = array.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    known, name = _type_of(dtype)
    data, read_only = interface["data"]
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        steps = _dlpack.packed_strides(list(shape))
    else:
        steps = [stride // dtype.itemsize for stride in strides]
    return Described(data, known, name, dtype.itemsize, DeviceType.CUDA, device_index, shape, tuple(steps),
                     not read_only, array)


def is_torch(value: Any) -> bool:
    """Whether it is a torch tensor; torch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _describe(value: Any, device_index: int) -> Described:
    if isinstance(value, np.ndarray):
        return _from_numpy(value)
    if is_torch(value):
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
        dtype = described.dtype
        if (dtype is None or dtype is DType.BYTES) and expected is not None:
            dtype = expected if expected.element_bytes == described.element_bytes else dtype
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
        ndim = len(described.shape)
        if not 1 <= ndim <= _MAX_DIMS:
            raise InvalidArgumentError(f"{name} has {ndim} dimensions, expected 1 to {_MAX_DIMS}")
        return TensorStruct(described.data, self.dtype, described.device_type, described.device_index, ndim,
                            described.shape, described.strides)


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
