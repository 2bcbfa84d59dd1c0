"""Arguments of calls that come again and again, each in a struct that stays.

A call of dispatch and combine describes a dozen tensors, and an engine calls with the same forms each time. So an argument
remembers the form of the tensor before (class, type, shape, strides, device): where it has not changed only the address is
put into the struct. The form is compared at every call: a tensor may have been changed in place.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy as np

from moeway._structs import TensorStruct
from moeway.enums import DType
from moeway.tensor import is_torch, struct_of

__all__ = ["Argument"]

_STRUCT_BYTES = ctypes.sizeof(TensorStruct)


class Argument:
    """An argument and its moeway_tensor, `struct`: a part of another struct, or one of its own.

    Messages call it `name`; raw elements as wide as `expected` are of that type; `write` for an output.
    """

    __slots__ = ("struct", "_name", "_expected", "_device_index", "_write", "_address", "_class", "_is_torch", "_is_numpy",
                 "_dtype", "_shape", "_strides", "_device")

    def __init__(self, name: str, struct: TensorStruct, expected: Optional[DType], device_index: int,
                 write: bool = False) -> None:
        self.struct = struct
        self._name, self._expected, self._device_index, self._write = name, expected, device_index, write
        self._address = ctypes.addressof(struct)
        self._class: Any = None  # Of the value before; None: the struct holds nothing that may be used again.
        self._is_torch = self._is_numpy = False
        self._dtype = self._shape = self._strides = self._device = None

    def set(self, value: Any) -> Any:
        """Describes `value` in the struct; None is no tensor. Gives what must live until the call has returned.

        Raises InvalidArgumentError as moeway.tensor.struct_of.
        """
        if value.__class__ is self._class:
            if self._is_torch:
                if (value.dtype is self._dtype and value.shape == self._shape and value.stride() == self._strides and
                        value.device == self._device):
                    self.struct.data = value.data_ptr()
                    return value
            elif self._is_numpy:
                data, read_only = value.__array_interface__["data"]
                if (value.dtype is self._dtype and value.shape == self._shape and value.strides == self._strides and
                        not (read_only and self._write)):
                    self.struct.data = data
                    return value
            elif value is None:
                return None
        return self._describe(value)

    def _describe(self, value: Any) -> Any:
        self._class = None
        described = struct_of(self._name, value, self._expected, self._device_index, self._write)
        ctypes.memmove(self._address, ctypes.addressof(described), _STRUCT_BYTES)
        self._is_torch, self._is_numpy = is_torch(value), isinstance(value, np.ndarray)
        if self._is_torch:
            self._dtype, self._shape, self._strides = value.dtype, value.shape, value.stride()
            self._device = value.device
        elif self._is_numpy:
            self._dtype, self._shape, self._strides = value.dtype, value.shape, value.strides
        if self._is_torch or self._is_numpy or value is None:
            self._class = value.__class__
        return described
