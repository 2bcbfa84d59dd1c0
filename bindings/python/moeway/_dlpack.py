"""Reads what `__dlpack__` returns: a capsule around a DLManagedTensor, with or without a version.

The capsule is only looked at, never taken over: whoever keeps it keeps the memory, and its destructor gives it back.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from typing import Any, List, NamedTuple, Optional, Tuple

from moeway.enums import DeviceType, DType

__all__ = ["Described", "packed_strides", "read"]

_MAX_VERSION = (1, 1)
_NO_SYNCHRONISATION = -1  # As a consumer's stream: calls are enqueued where the producer works.
_READ_ONLY = 1  # A flag of versioned tensors.

# DLDeviceType: host memory that a device can reach counts as host memory, managed memory as device memory.
_DEVICES = {1: DeviceType.CPU, 3: DeviceType.CPU, 2: DeviceType.CUDA, 13: DeviceType.CUDA}

# (DLDataTypeCode, bits). Unsigned integers of two bytes, for example, have no name here: they are raw.
_DTYPES = {
    (4, 16): DType.BF16, (2, 16): DType.F16, (2, 32): DType.F32, (10, 8): DType.F8_E4M3, (14, 8): DType.UE8M0,
    (1, 8): DType.BYTES, (0, 32): DType.I32, (0, 64): DType.I64,
}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("manager", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", _DLTensor)]


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.restype, _is_capsule.argtypes = ctypes.c_int, [py_object, c_char_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, [py_object, c_char_p]


class Described(NamedTuple):
    """A tensor's memory as its owner describes it; strides in elements; dtype None: raw elements of element_bytes."""

    data: int
    dtype: Optional[DType]
    dtype_name: str
    element_bytes: int
    device_type: DeviceType
    device_index: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    writable: bool
    owner: Any


def _capsule_of(tensor: Any) -> Any:
    device_type, _ = tensor.__dlpack_device__()
    stream = {} if _DEVICES.get(device_type) != DeviceType.CUDA else {"stream": _NO_SYNCHRONISATION}
    try:
        return tensor.__dlpack__(max_version=_MAX_VERSION, **stream)
    except TypeError:  # Older producers do not know of versions.
        return tensor.__dlpack__(**stream)


def packed_strides(shape: List[int]) -> List[int]:
    """Strides, in elements, of a tensor whose rows follow one another."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def read(tensor: Any) -> Described:
    """What `tensor.__dlpack__()` describes. Raises TypeError for a device or a capsule that is not known."""
    capsule = _capsule_of(tensor)
    writable = True
    if _is_capsule(capsule, b"dltensor_versioned"):
        versioned = ctypes.cast(_pointer_of(capsule, b"dltensor_versioned"), POINTER(_ManagedVersioned)).contents
        described, writable = versioned.tensor, not versioned.flags & _READ_ONLY
    elif _is_capsule(capsule, b"dltensor"):
        described = ctypes.cast(_pointer_of(capsule, b"dltensor"), POINTER(_Managed)).contents.tensor
    else:
        raise TypeError(f"{type(tensor).__name__}.__dlpack__() returned no DLPack capsule")
    device = _DEVICES.get(described.device_type)
    if device is None:
        raise TypeError(f"DLPack device type {described.device_type} is neither CPU nor CUDA")
    shape = [described.shape[i] for i in range(described.ndim)]
    strides = [described.strides[i] for i in range(described.ndim)] if described.strides else packed_strides(shape)
    bits = described.bits * described.lanes
    dtype = _DTYPES.get((described.code, described.bits)) if described.lanes == 1 else None
    return Described((described.data or 0) + described.byte_offset, dtype,
                     f"DLPack type code {described.code} with {bits} bits", bits // 8, device, described.device_id,
                     tuple(shape), tuple(strides), writable, (tensor, capsule))
