"""What dispatch and combine must give, in numpy, written from docs/layouts.md and sharing nothing with the package.

All numbers are small multiples of small powers of two, so that every sum is exact in every type and in every order, and
results are compared bit by bit. Experts differ, weights are not 1, ranks and rounds have different data.
"""

import dataclasses

import numpy as np


def _f8_table():
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    value[(codes & 127) == 127] = np.nan
    return np.where(codes & 128, -value, value).astype(np.float32)


F8 = _f8_table()


def encode(dtype, values):
    """float32 values that the type holds exactly, as numpy elements: raw where numpy has no such type."""
    values = np.asarray(values, np.float32)
    if dtype == "f32":
        return values
    if dtype == "f16":
        return values.astype(np.float16)
    if dtype == "bf16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        assert not (bits & 0xFFFF).any(), "bf16 does not hold a value of this test"
        return (bits >> 16).astype(np.uint16)
    codes = np.array([code for code in range(256) if code & 127 != 127 and code != 128])
    order = np.argsort(F8[codes])
    found = codes[order][np.searchsorted(F8[codes][order], values)].astype(np.uint8)
    assert (F8[found] == values).all(), "f8_e4m3 does not hold a value of this test"
    return found


def decode(dtype, elements):
    """The float32 values of numpy elements."""
    if dtype == "bf16":
        return (np.ascontiguousarray(elements).astype(np.uint32) << 16).view(np.float32)
    if dtype == "f8_e4m3":
        return F8[elements]
    return elements.astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Case:
    """A shape: the fields of AllToAllConfig that matter here, and the number of ranks."""

    num_ranks: int
    num_experts: int
    topk: int
    hidden: int = 24
    max_tokens: int = 6
    dispatch_dtype: str = "bf16"
    token_bytes: int = 0
    scales: str = "none"
    scale_bytes: int = 0
    quantise: str = "none"
    row_dtype: str = "bf16"
    output_dtype: str = "bf16"
    layout: str = "expert_padded"
    alignment: int = 1
    weights: str = "at_dispatch"
    distinct_experts: bool = False
    replicas: int = 1

    def config(self):
        fields = dataclasses.asdict(self)
        del fields["num_ranks"]
        return fields

    def experts_of(self, rank):
        fewer, more = divmod(self.num_experts, self.num_ranks)
        first = rank * fewer + min(rank, more)
        return range(first, first + fewer + (rank < more))

    def owner(self, expert):
        return next(rank for rank in range(self.num_ranks) if expert in self.experts_of(rank))

    @property
    def num_groups(self):
        return self.num_ranks // self.replicas

    @property
    def capacity(self):
        return self.num_groups * self.max_tokens * (1 if self.distinct_experts else self.topk)

    def sender(self, group, token, num_tokens):
        """The rank of a group that sends one of its tokens: shares in the order of the ranks, the first ones larger."""
        return group * self.replicas + np.repeat(np.arange(self.replicas), [
            len(share) for share in np.array_split(np.arange(num_tokens), self.replicas)])[token]


@dataclasses.dataclass
class Batch:
    """A rank's tokens in one round."""

    x: np.ndarray  # as dispatch delivers it
    scales: np.ndarray
    topk_idx: np.ndarray
    topk_weights: np.ndarray
    unquantised: np.ndarray = None  # what is given instead of x and scales where dispatch quantises

    @property
    def given(self):
        """x and scales of a dispatch."""
        return (self.x, self.scales) if self.unquantised is None else (self.unquantised, None)


def quantise(case, x):
    """e4m3 elements and scales of x [T, H] raw bf16, from docs/quantisation.md."""
    num_tokens, hidden = x.shape
    num_blocks = -(-hidden // 128)
    padded = np.zeros((num_tokens, 128 * num_blocks), np.float32)
    padded[:, :hidden] = decode("bf16", x)
    blocks = padded.reshape(num_tokens, num_blocks, 128)
    finite = np.isfinite(blocks).all(-1)
    most = np.maximum(np.abs(np.where(finite[..., None], blocks, 0)).max(-1), np.float32(1e-4))
    scales = most * np.float32(1 / 448)
    factors = np.float32(448) / most
    if case.quantise == "power_of_two":
        fractions, exponents = np.frexp(scales)
        scales = np.ldexp(np.float32(1), exponents - (fractions == 0.5)).astype(np.float32)
        factors = np.float32(1) / scales
    scaled = (np.where(finite[..., None], blocks, 0) * factors[..., None]).reshape(padded.shape)
    magnitudes = F8[:127].astype(np.float64)
    codes = np.searchsorted((magnitudes[1:] + magnitudes[:-1]) / 2, np.abs(scaled), side="left")
    tie = np.isin(np.abs(scaled), (magnitudes[1:] + magnitudes[:-1]) / 2)
    codes = np.where(tie & (codes & 1 == 1), codes + 1, codes) | np.where(np.signbit(padded), 128, 0)
    codes = np.where(np.repeat(finite, 128, axis=-1), codes, 127)[:, :hidden].astype(np.uint8)
    scales = np.where(finite, scales, np.float32(1))
    if case.scales == "ue8m0":
        return codes, (np.log2(scales) + 127).astype(np.uint8)
    return codes, scales


def make_batch(case, rank, round_number, index_dtype=np.int32):
    """Random, with its own number of tokens: none on rank 1 of round 1, all of M on rank 0. Replicas: one of a group."""
    rank //= case.replicas
    random = np.random.default_rng([7, rank, round_number, case.num_ranks, case.num_experts])
    num_tokens = case.max_tokens if rank == 0 else int(random.integers(0, case.max_tokens + 1))
    if rank == 1 and round_number == 1:
        num_tokens = 0
    unquantised = None
    if case.quantise != "none":
        # 7 is 448 / 64: with it in each block, scales are 1 / 64 and small numbers are exact.
        numbers = random.integers(-2, 3, (num_tokens, case.hidden))
        numbers[:, ::128] = 7
        unquantised = x = encode("bf16", numbers)
    elif case.dispatch_dtype == "bytes":
        x = random.integers(0, 256, (num_tokens, case.token_bytes)).astype(np.uint8)
    else:
        x = encode(case.dispatch_dtype, random.integers(-2, 3, (num_tokens, case.hidden)))
    num_blocks = -(-case.hidden // 128)
    exponents = random.integers(0, 2, (num_tokens, num_blocks))
    scales = {"none": None, "f32": (2.0**exponents).astype(np.float32), "ue8m0": (127 + exponents).astype(np.uint8),
              "bytes": random.integers(0, 256, (num_tokens, case.scale_bytes)).astype(np.uint8)}[case.scales]
    idx = np.stack([random.permutation(case.num_experts)[:case.topk] for _ in range(num_tokens)] or
                   [np.zeros(case.topk)])[:num_tokens].astype(index_dtype)
    if num_tokens > 1:
        idx[0, -1] = -1
        if not case.distinct_experts and case.topk > 1:
            idx[1, 1] = idx[1, 0]
    weights = random.integers(1, 5, idx.shape).astype(np.float32) / 4
    weights[idx < 0] = np.nan  # Weights of routes that are none must not matter.
    if unquantised is not None:
        x, scales = quantise(case, unquantised)
    return Batch(x, scales, idx, weights, unquantised)


def token_values(case, x, scales):
    """What a token's elements are worth, [.., H] float32."""
    if case.dispatch_dtype == "bytes":
        return x[..., np.arange(case.hidden) % case.token_bytes].astype(np.float32) % 5 - 2
    values = decode(case.dispatch_dtype, x)
    if case.scales in ("f32", "ue8m0"):
        factors = scales if case.scales == "f32" else np.float32(2.0) ** (scales.astype(np.float32) - 127)
        values = values * np.repeat(factors, 128, axis=-1)[..., :case.hidden]
    return values


def expert_factor(expert):
    return np.float32(1 + expert % 3)


def rows_for(case, batches, rank):
    """For each local expert the (source rank, token, k) of its rows, in order."""
    rows = [[] for _ in case.experts_of(rank)]
    for group, batch in enumerate(batches[::case.replicas]):
        for token, k in np.ndindex(*batch.topk_idx.shape):
            expert = batch.topk_idx[token, k]
            if expert in case.experts_of(rank):
                source = case.sender(group, token, len(batch.x))
                rows[expert - case.experts_of(rank)[0]].append((source, token, k))
    return rows


def combined(case, batch):
    """y [T, H] in output_dtype's elements."""
    y = np.zeros((len(batch.x), case.hidden), np.float32)
    for token, k in np.ndindex(*batch.topk_idx.shape):
        expert = batch.topk_idx[token, k]
        if expert >= 0:
            scales = None if batch.scales is None else batch.scales[token]
            row = expert_factor(expert) * token_values(case, batch.x[token], scales)
            y[token] += batch.topk_weights[token, k] * row
    return encode(case.output_dtype, y)
