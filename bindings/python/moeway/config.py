"""What an AllToAll is created with, how much it needs, and who owns which expert."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, NamedTuple, Optional

from moeway._library import call, lib
from moeway._structs import ConfigStruct, SizesStruct
from moeway.enums import DType, Execution, Layout, Overflow, Quantise, Scales, Weights, choice_of
from moeway.errors import InvalidArgumentError

__all__ = ["AllToAllConfig", "AllToAllSizes", "expert_owner", "first_expert", "num_local_experts", "sizes_of"]

# A member of an enumeration or its name, and for types a numpy or torch dtype; in a config that is made, the member.
Choice = Any

_CHOICES = {
    "dispatch_dtype": DType, "row_dtype": DType, "output_dtype": DType, "scales": Scales, "layout": Layout,
    "weights": Weights, "overflow": Overflow, "execution": Execution, "quantise": Quantise,
}


@dataclasses.dataclass(frozen=True)
class AllToAllConfig:
    """The fields of moeway_all_to_all_config, which c_api.h describes. Choices are members of the enums or their names.

    All but execution, num_warps, timeout_ms and num_sms must be equal on all ranks.
    """

    num_experts: int  # E >= 1
    topk: int  # K, 1 to E
    hidden: int  # H >= 1, elements
    max_tokens: int  # M >= 1, most tokens of a rank in one call
    dispatch_dtype: Choice = DType.BF16  # bf16, f16, f32, f8_e4m3 or bytes
    token_bytes: int = 0  # bytes of a row, when dispatch_dtype is bytes
    scales: Choice = Scales.NONE
    scale_bytes: int = 0  # bytes of a token's scales, when scales is bytes
    quantise: Choice = Quantise.NONE  # else x is bf16 without scales, made f8_e4m3 with scales f32 or ue8m0 on the way
    row_dtype: Choice = DType.BF16  # of the rows that combine is given: bf16, f16 or f32
    output_dtype: Choice = DType.BF16  # of the sums that combine writes: bf16, f16 or f32
    layout: Choice = Layout.EXPERT_PADDED
    alignment: int = 1  # rows, expert_packed only
    weights: Choice = Weights.AT_DISPATCH
    distinct_experts: bool = False  # no token names an expert twice
    replicas: int = 1  # R, a divisor of W: consecutive ranks that hold the same tokens
    max_recv_tokens: int = 0  # most rows: of an expert (padded), of a rank (packed); 0: the worst case
    overflow: Choice = Overflow.ERROR  # what becomes of more rows than that: error or drop
    execution: Choice = Execution.FIBERS  # CPU ranks
    num_warps: int = 4  # CPU ranks
    timeout_ms: Optional[int] = None  # limit of every wait for a peer; None: 30000, or MOEWAY_TIMEOUT_MS
    num_sms: int = 0  # CUDA ranks: multiprocessors that a call may take; 0: as many as there are

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            object.__setattr__(self, name, choice_of(kind, getattr(self, name), name))

    def to_struct(self) -> ConfigStruct:
        """The C struct. Raises InvalidArgumentError for a number that does not fit its field."""
        struct = ConfigStruct()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "timeout_ms" and value is None:
                value = lib.moeway_default_timeout_ms()
            setattr(struct, field.name, int(value))
            if getattr(struct, field.name) != int(value):  # ctypes cuts off what does not fit.
                raise InvalidArgumentError(f"{field.name} is {value}, which its field in c_api.h does not hold")
        return struct


class AllToAllSizes(NamedTuple):
    """What a rank of a job needs: moeway_all_to_all_sizes."""

    first_local_expert: int
    num_local_experts: int  # L; may be 0
    expert_capacity: int  # rows that an expert can get
    max_rows: int  # rows of x that dispatch can write
    row_bytes: int
    num_scales: int  # of a token, in elements of their type; 0 without scales
    heap_bytes: int  # symmetric heap, the same on all ranks
    workspace_bytes: int  # private memory of this rank


def sizes_of(config: AllToAllConfig, rank: int, num_ranks: int) -> AllToAllSizes:
    """The sizes for `rank` of `num_ranks`. Allocates nothing; raises as creation would if the config is refused."""
    struct = SizesStruct()
    call(lib.moeway_all_to_all_get_sizes, ctypes.byref(config.to_struct()), rank, num_ranks, ctypes.byref(struct))
    return AllToAllSizes(*(getattr(struct, name) for name in AllToAllSizes._fields))


def expert_owner(expert: int, num_experts: int, num_ranks: int) -> int:
    """The rank that owns an expert; -1 if an argument is out of range.

    The first E mod W ranks own ceil(E / W) consecutive experts, the others floor(E / W).
    """
    return lib.moeway_expert_owner(expert, num_experts, num_ranks)


def first_expert(rank: int, num_experts: int, num_ranks: int) -> int:
    """The first expert that a rank owns; -1 if an argument is out of range."""
    return lib.moeway_first_expert(rank, num_experts, num_ranks)


def num_local_experts(rank: int, num_experts: int, num_ranks: int) -> int:
    """How many experts a rank owns; -1 if an argument is out of range."""
    return lib.moeway_num_local_experts(rank, num_experts, num_ranks)
