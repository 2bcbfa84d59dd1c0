"""Arrays that this package makes itself: outputs where the caller gave none, and views of the symmetric heap.

They come from the library that the caller's own arrays come from, its *kind*: "numpy", "ml_dtypes" (numpy with its
types), "torch" or "cupy".
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Sequence

import numpy as np

from moeway._structs import TensorStruct
from moeway.enums import DeviceType, DType
from moeway.errors import InvalidArgumentError, UnavailableError
from moeway.tensor import Tensor

__all__ = ["KINDS", "empty", "kind_of", "view"]

KINDS = ("numpy", "ml_dtypes", "torch", "cupy")

_RAW = {
    DType.BF16: "uint16", DType.F16: "float16", DType.F32: "float32", DType.F8_E4M3: "uint8", DType.UE8M0: "uint8",
    DType.BYTES: "uint8", DType.I32: "int32", DType.I64: "int64",
}
_NAMED = {DType.BF16: "bfloat16", DType.F8_E4M3: "float8_e4m3fn", DType.UE8M0: "float8_e8m0fnu"}


def kind_of(value: Any) -> str:
    """The kind of an array; "numpy" for one of a library that is not known here."""
    if isinstance(value, Tensor):
        value = value.value
    if isinstance(value, np.ndarray):
        return "ml_dtypes" if value.dtype.name in _NAMED.values() else "numpy"
    module = type(value).__module__.split(".")[0]
    return module if module in KINDS else "numpy"


def _torch_dtype(dtype: DType) -> Any:
    torch = sys.modules["torch"]
    return getattr(torch, _NAMED.get(dtype, _RAW[dtype]), None) or getattr(torch, _RAW[dtype])


def _numpy_dtype(dtype: DType, kind: str) -> np.dtype:
    if kind == "ml_dtypes" and dtype in _NAMED:
        return np.dtype(getattr(sys.modules["ml_dtypes"], _NAMED[dtype]))
    return np.dtype(_RAW[dtype])


def empty(kind: str, shape: Sequence[int], dtype: DType, device_type: DeviceType, device_index: int) -> Any:
    """An array that holds anything, on the device. Without a type of its own for `dtype`, raw elements.

    Raises InvalidArgumentError for numpy on a CUDA device: then the outputs must be given.
    """
    if kind == "torch":
        torch = sys.modules["torch"]
        device = "cpu" if device_type == DeviceType.CPU else f"cuda:{device_index}"
        return torch.empty(tuple(shape), dtype=_torch_dtype(dtype), device=device)
    if kind == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device_index):
            return cupy.empty(tuple(shape), dtype=_RAW[dtype])
    if device_type != DeviceType.CPU:
        raise InvalidArgumentError(
            "outputs can be allocated on a CUDA device for torch and cupy inputs only; give the outputs")
    return np.empty(tuple(shape), dtype=_numpy_dtype(dtype, kind))


class _OnDevice:
    """Device memory for those who read `__cuda_array_interface__`. Keeps `owner` alive."""

    def __init__(self, struct: TensorStruct, owner: Any) -> None:
        dtype = DType(struct.dtype)
        # Signed: torch takes no unsigned integers of two bytes here.
        typestr = np.dtype(_RAW[dtype].replace("uint16", "int16")).str
        self.owner = owner
        self.__cuda_array_interface__ = {
            "data": (struct.data, False),
            "shape": tuple(struct.shape[: struct.ndim]),
            "strides": tuple(stride * dtype.element_bytes for stride in struct.strides[: struct.ndim]),
            "typestr": typestr,
            "version": 3,
            "stream": None,
        }


def _host_array(struct: TensorStruct, kind: str, owner: Any) -> np.ndarray:
    dtype = DType(struct.dtype)
    shape, strides = tuple(struct.shape[: struct.ndim]), tuple(struct.strides[: struct.ndim])
    numpy_dtype = _numpy_dtype(dtype, kind)
    if 0 in shape:
        return np.empty(shape, dtype=numpy_dtype)
    num_bytes = (1 + sum((size - 1) * stride for size, stride in zip(shape, strides))) * dtype.element_bytes
    memory = (ctypes.c_ubyte * num_bytes).from_address(struct.data)
    memory.owner = owner  # The array keeps `memory`, which keeps its owner.
    return np.ndarray(shape, numpy_dtype, memory, strides=tuple(stride * dtype.element_bytes for stride in strides))


def view(struct: TensorStruct, kind: str, owner: Any) -> Any:
    """An array over the memory that `struct` names, without a copy. It keeps `owner` alive, not the memory.

    Raises UnavailableError for a kind that cannot see memory of the device.
    """
    on_device = struct.device_type == DeviceType.CUDA
    dtype = DType(struct.dtype)
    if kind == "torch":
        torch = sys.modules["torch"]
        if on_device:
            raw = torch.as_tensor(_OnDevice(struct, owner), device=f"cuda:{struct.device_index}")
            return raw.view(_torch_dtype(dtype))
        array = _host_array(struct, "numpy", owner)
        raw = array.view(np.int16) if array.dtype == np.uint16 else array
        return torch.from_numpy(raw).view(_torch_dtype(dtype))
    if not on_device:
        return _host_array(struct, kind, owner)
    if kind == "cupy":
        return sys.modules["cupy"].asarray(_OnDevice(struct, owner))
    raise UnavailableError(f"a {kind} array cannot lie on a CUDA device; give dispatch torch or cupy tensors")
