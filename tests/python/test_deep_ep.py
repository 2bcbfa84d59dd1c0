"""moeway.compat.deep_ep on CPU ranks: both modes as its users call them, against sums made one token at a time."""

import sys

import moeway
import pytest
from places import device_of
from ranks import run_threads

torch = pytest.importorskip("torch", reason="torch is not installed: compat.deep_ep was not tested")

from moeway.compat import deep_ep, install  # noqa: E402

E, K, H, M = 8, 3, 1024, 12


def batch(rank, seed=0, device="cpu"):
    """x [T, H] bf16, topk_idx [T, K] int64 with some -1, topk_weights of a rank, on a device."""
    random = torch.Generator().manual_seed(100 * seed + rank)
    num_tokens = 0 if (rank, seed) == (1, 1) else M - 2 * rank
    x = torch.randn(num_tokens, H, generator=random).bfloat16()
    idx = torch.stack([torch.randperm(E, generator=random) for _ in range(M)])[:num_tokens, :K].contiguous()
    idx[:1, 0] = idx[1:2, 2] = -1
    idx[2:3] = -1
    return x.to(device), idx.to(device), torch.rand(num_tokens, K, generator=random).to(device)


def buffers(job, num_ranks=2, **options):
    def run(communicator):
        buffer = deep_ep.Buffer(communicator=communicator, **options)
        job(buffer)
        buffer.destroy()

    run_threads(num_ranks, run)


def unpacked_scales(scales):
    """float32 [.., H / 128] of either form."""
    if scales.dtype == torch.float32:
        return scales
    exponents = scales.contiguous().view(torch.uint8).int()
    return torch.exp2(exponents.float() - 127)


def check_low_latency(buffer, seed, hook=False, use_fp8=True, round_scale=False, use_ue8m0=False):
    device = device_of(buffer.rank)
    batches = [batch(rank, seed, device) for rank in range(buffer.group_size)]
    x, idx, weights = batches[buffer.rank]
    num_local = E // buffer.group_size
    stats = torch.zeros(num_local, dtype=torch.int32, device=device)
    received, counts, handle, event, receive = buffer.low_latency_dispatch(
        x, idx, M, E, cumulative_local_expert_recv_stats=stats, use_fp8=use_fp8, round_scale=round_scale,
        use_ue8m0=use_ue8m0, async_finish=not hook, return_recv_hook=hook)
    receive() if hook else event.current_stream_wait()
    rows = received
    if use_fp8:
        elements, scales = received
        num_scales = H // 512 if use_ue8m0 else H // 128  # UE8M0: four in an int32
        assert elements.dtype == torch.float8_e4m3fn and scales.shape == (num_local, 2 * M, num_scales)
        assert scales.stride(1) == 1
        rows = elements.float() * unpacked_scales(scales).repeat_interleave(128, dim=-1)
    assert rows.shape == (num_local, M * buffer.group_size, H)
    for local in range(num_local):
        expert = buffer.rank * num_local + local
        expected = [(src, token) for src, (_, other, _) in enumerate(batches)
                    for token in (other == expert).any(1).nonzero().flatten().tolist()]
        assert counts[local] == stats[local] == len(expected)
        for src in range(buffer.group_size):
            first, count = int(handle[1][local, src]) >> 32, int(handle[1][local, src]) & 0xFFFFFFFF
            assert [(src, int(token)) for token in handle[0][local, first:first + count]] == \
                [pair for pair in expected if pair[0] == src]
        for i, (src, token) in enumerate(expected):
            torch.testing.assert_close(rows[local, i].float(), batches[src][0][token].float(),
                                       rtol=0.08 if use_fp8 else 0, atol=0.02 if use_fp8 else 0)
    factors = torch.arange(1, E + 1, device=device)[buffer.rank * num_local:][:num_local, None, None]
    made = (rows.float() * factors).bfloat16()
    expected = torch.where(idx >= 0, weights * (idx + 1), 0).sum(1, keepdim=True) * x.float()
    for zero_copy in (False, True):
        if zero_copy:
            buffer.get_next_low_latency_combine_buffer(handle)[:, :, :] = made
        out = torch.full((len(x), H), torch.nan, dtype=torch.bfloat16, device=device)
        y, event, receive = buffer.low_latency_combine(
            torch.zeros_like(made) if zero_copy else made, idx, weights, handle, zero_copy=zero_copy,
            async_finish=not hook, return_recv_hook=hook, out=out)
        receive() if hook else event.current_stream_wait()
        assert y is out
        torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.15 if use_fp8 else 0.05)


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("fp8", [dict(use_fp8=False), dict(), dict(round_scale=True),
                                 dict(round_scale=True, use_ue8m0=True)])
def test_low_latency_round(fp8, hook):
    def job(buffer):
        for seed in range(3):
            check_low_latency(buffer, seed, hook, **fp8)

    buffers(job, low_latency_mode=True, num_qps_per_rank=4)


def expected_tokens(batches, rank, size):
    """(source, token) with a route to this rank, in order."""
    owner = lambda idx: torch.where(idx >= 0, idx // (E // size), -1)  # noqa: E731
    return [(src, token) for src, (_, idx, _) in enumerate(batches)
            for token in (owner(idx) == rank).any(1).nonzero().flatten().tolist()]


def check_normal(buffer, seed, use_fp8=False, worst=0):
    size, num_local = buffer.group_size, E // buffer.group_size
    device = device_of(buffer.rank)
    batches = [batch(rank, seed, device) for rank in range(size)]
    x, idx, weights = batches[buffer.rank]
    per_rank, per_rdma_rank, per_expert, in_rank, _ = buffer.get_dispatch_layout(idx, E)
    assert per_rdma_rank is None and per_rank.dtype == per_expert.dtype == torch.int32
    assert per_expert.tolist() == [(idx == expert).sum().item() for expert in range(E)]
    assert torch.equal(in_rank.sum(0).int(), per_rank)
    given = (x.to(torch.float8_e4m3fn), torch.rand(len(x), H // 128, device=device)) if use_fp8 else x
    received, recv_idx, recv_weights, counts, handle, _ = buffer.dispatch(
        given, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=idx,
        topk_weights=weights, expert_alignment=4, num_worst_tokens=worst, async_finish=True)
    rows = received[0] if use_fp8 else received
    tokens = expected_tokens(batches, buffer.rank, size)
    assert len(rows) == (worst or len(tokens))
    for row, (src, token) in enumerate(tokens):
        other_x, other_idx, other_weights = batches[src]
        here = other_idx[token] // num_local == buffer.rank
        here &= other_idx[token] >= 0
        assert torch.equal(rows[row].float(), (other_x.to(rows.dtype)[token]).float())
        assert torch.equal(recv_idx[row], torch.where(here, other_idx[token] - buffer.rank * num_local, -1))
        assert torch.equal(recv_weights[row], torch.where(here, other_weights[token], 0))
    assert (recv_idx[len(tokens):] == -1).all()
    all_idx = torch.cat([other[1] for other in batches])
    mine = range(buffer.rank * num_local, (buffer.rank + 1) * num_local)
    assert counts == ([] if worst else [-(-int((all_idx == expert).sum()) // 4) * 4 for expert in mine])

    factors = torch.where(recv_idx >= 0, recv_weights, 0).sum(1, keepdim=True)
    made = (rows.float() * factors).bfloat16()
    total = torch.where(idx >= 0, weights, 0).sum(1, keepdim=True)
    value = (given[0] if use_fp8 else x).float()
    bias = torch.full_like(x, 2.0)
    for with_bias in (None, bias, (bias, bias)):
        y, sums, _ = buffer.combine(made, handle, topk_weights=recv_weights, bias=with_bias)
        extra = 0 if with_bias is None else 2 if with_bias is bias else 4
        torch.testing.assert_close(y.float(), total * value + extra, rtol=0.03, atol=0.06)
        torch.testing.assert_close(sums, torch.where(idx >= 0, weights, 0))
    # Backward: other tokens along the same routes, and back.
    again, *rest, _ = buffer.dispatch(-x, handle=handle)
    assert rest == [None, None, None, None]
    for row, (src, token) in enumerate(tokens):
        assert torch.equal(again[row], -batches[src][0][token])
    y, sums, _ = buffer.combine(again, handle)
    assert sums is None
    torch.testing.assert_close(y.float(), -(in_rank.sum(1, keepdim=True) * x.float()), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("options", [dict(), dict(use_fp8=True), dict(worst=64)])
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_normal_round(num_ranks, options):
    def job(buffer):
        for seed in range(2):
            check_normal(buffer, seed, **options)

    buffers(job, num_ranks)


def test_both_modes_share_a_buffer():
    def job(buffer):
        check_normal(buffer, 0)
        buffer.clean_low_latency_buffer(M, H, E)
        check_low_latency(buffer, 1)
        check_normal(buffer, 2)

    buffers(job)


def test_what_is_not_there_says_so():
    def job(buffer):
        x, idx, weights = batch(buffer.rank, device=device_of(buffer.rank))
        for call, message in (
            (lambda: buffer.low_latency_dispatch(x, idx, M, E, dispatch_wait_recv_cost_stats=idx), "time waits"),
            (lambda: buffer.low_latency_combine(x, idx, weights, None, use_logfmt=True), "use_logfmt"),
            (lambda: buffer.low_latency_combine(x, idx, weights, None, combine_wait_recv_cost_stats=idx), "time waits"),
            (lambda: buffer.low_latency_update_mask_buffer(0, True), "a lost rank ends"),
            (lambda: buffer.get_local_buffer_tensor(torch.uint8), "raw memory"),
            (lambda: buffer.dispatch(x, is_token_in_rank=idx > 0), "is_token_in_rank alone"),
        ):
            with pytest.raises(NotImplementedError, match=message):
                call()

    buffers(job, 1)


def test_mistakes_are_named():
    def job(buffer):
        x, idx, weights = batch(buffer.rank, device=device_of(buffer.rank))
        for call, message in (
            (lambda: buffer.low_latency_dispatch(x.float(), idx, M, E), "expected torch.bfloat16"),
            (lambda: buffer.low_latency_dispatch(x[:, :100], idx, M, E), "hidden is 100, expected a multiple of 128"),
            (lambda: buffer.low_latency_dispatch(x, idx, M, E, use_ue8m0=True), "without round_scale"),
            (lambda: buffer.low_latency_dispatch(x[:, :256], idx, M, E, round_scale=True, use_ue8m0=True), "of 512"),
            (lambda: buffer.low_latency_dispatch(x, idx, 4, E), "expected at most max_tokens = 4"),
            (lambda: buffer.dispatch(x, topk_idx=idx), "num_tokens_per_expert is None"),
        ):
            with pytest.raises(moeway.InvalidArgumentError, match=message):
                call()

    buffers(job, 1)
    with pytest.raises(ValueError, match="Either 'group' or 'comm'"):
        deep_ep.Buffer()


def test_queries_and_hints():
    def job(buffer):
        mask = torch.ones(buffer.group_size, dtype=torch.int32, device=device_of(buffer.rank))
        buffer.low_latency_query_mask_buffer(mask)
        assert (mask == 0).all()
        buffer.low_latency_update_mask_buffer(0, False)
        buffer.low_latency_clean_mask_buffer()
        assert (buffer.rank, buffer.group_size) == (0, 1)

    buffers(job, 1)
    hint = deep_ep.Buffer.get_low_latency_rdma_size_hint
    assert 0 < hint(16, 512, 4, 8) < hint(32, 512, 4, 8)
    assert deep_ep.Buffer.get_dispatch_config(8).get_nvl_buffer_size_hint(1024, 8) == 0
    with deep_ep.Buffer.capture() as event:
        assert isinstance(event, deep_ep.EventOverlap)
    deep_ep.EventOverlap().current_stream_wait()
    deep_ep.Buffer.set_num_sms(24)
    assert deep_ep.Buffer.num_sms == 24 and deep_ep.Buffer.get_combine_config(2).num_sms == 24
    assert deep_ep.topk_idx_t == torch.int64


def test_installed_it_takes_the_original_s_name():
    install("deep_ep")
    import deep_ep as installed
    from deep_ep.utils import EventHandle, EventOverlap

    assert installed is deep_ep and (EventHandle, EventOverlap) == (deep_ep.EventHandle, deep_ep.EventOverlap)
    for name in [name for name in sys.modules if name.startswith("deep_ep")]:
        del sys.modules[name]


def test_a_group_of_torch_is_enough(tmp_path):
    """One rank of gloo; several are what the example trains on."""
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        buffer = deep_ep.Buffer(distributed.group.WORLD, 0, 0, low_latency_mode=True)
        check_low_latency(buffer, 0, use_fp8=False)
        buffer.destroy()
    finally:
        distributed.destroy_process_group()
