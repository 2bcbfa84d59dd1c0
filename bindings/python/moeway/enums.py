"""The choices of a config, with the names and values of c_api.h.

Wherever one of them is expected its name does as well: "bf16", "expert_packed".
"""

from __future__ import annotations

import enum
from typing import Any, Type, TypeVar, Union

from moeway.errors import InvalidArgumentError

__all__ = ["DeviceType", "DType", "Execution", "Layout", "Overflow", "Quantise", "Scales", "Weights"]


class DType(enum.IntEnum):
    """Element types. BYTES is opaque; UE8M0 is one byte, a power of two, as a scale."""

    BF16 = 0
    F16 = 1
    F32 = 2
    F8_E4M3 = 3
    UE8M0 = 4
    BYTES = 5
    I32 = 6
    I64 = 7

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return _ELEMENT_BYTES[self]


_ELEMENT_BYTES = (2, 2, 4, 1, 1, 1, 4, 8)


class DeviceType(enum.IntEnum):
    """Where a tensor lies and a rank's kernels run."""

    CPU = 0
    CUDA = 1


class Layout(enum.IntEnum):
    """Where dispatch writes rows. docs/layouts.md describes them."""

    EXPERT_PADDED = 0
    EXPERT_PACKED = 1
    TOKEN_MAJOR = 2


class Scales(enum.IntEnum):
    """What travels beside a token's elements."""

    NONE = 0
    F32 = 1
    UE8M0 = 2
    BYTES = 3


class Quantise(enum.IntEnum):
    """Whether dispatch makes fp8 of bf16, and what a block's scale is. docs/quantisation.md has every number."""

    NONE = 0
    LARGEST = 1
    POWER_OF_TWO = 2


class Weights(enum.IntEnum):
    """When the router's weights are known."""

    AT_DISPATCH = 0
    AT_COMBINE = 1


class Overflow(enum.IntEnum):
    """What becomes of rows that max_recv_tokens leaves no room for: the dispatch fails, or the last ones are dropped."""

    ERROR = 0
    DROP = 1


class Execution(enum.IntEnum):
    """How CPU ranks run their kernels; results do not depend on it."""

    FIBERS = 0
    THREADS = 1
    LANES = 2


# What numpy, ml_dtypes and torch call the types that differ in name.
_OTHER_NAMES = {
    "bfloat16": "bf16", "float16": "f16", "half": "f16", "float32": "f32", "float": "f32", "float8_e4m3fn": "f8_e4m3",
    "float8_e8m0fnu": "ue8m0", "uint8": "bytes", "int32": "i32", "int64": "i64",
}

Choice = TypeVar("Choice", bound=enum.IntEnum)


def choice_of(kind: Type[Choice], value: Union[Choice, str, int, Any], name: str) -> Choice:
    """`value` as a member of `kind`: a member, its name in any case, or, for a DType, a numpy or torch dtype.

    Raises InvalidArgumentError, which calls the argument `name`.
    """
    if isinstance(value, kind):
        return value
    text = value if isinstance(value, str) else str(getattr(value, "name", value)).rsplit(".", 1)[-1]
    text = text.lower()
    if kind is DType:
        text = _OTHER_NAMES.get(text, text)
    try:
        return kind[text.upper()]
    except KeyError:
        known = ", ".join(member.name.lower() for member in kind)
        raise InvalidArgumentError(f"{name} is {value!r}, expected one of {known}") from None
