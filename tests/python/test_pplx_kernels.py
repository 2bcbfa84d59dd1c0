"""moeway.compat.pplx_kernels on CPU ranks: calls as its users make them, against sums made one token at a time."""

import sys

import moeway
import pytest
from places import ON_GPUS, device_of
from ranks import run_processes, run_threads

torch = pytest.importorskip("torch", reason="torch is not installed: compat.pplx_kernels was not tested")

from moeway.compat import install, pplx_kernels  # noqa: E402

E, K, H, M = 8, 3, 256, 10


def tokens_of(group, dtype, seed=0, device="cpu"):
    """What the ranks of one data-parallel group hold, on a device: x, its scales, indices, weights."""
    random = torch.Generator().manual_seed(10 * seed + group)
    num_tokens = M if group == 0 else int(torch.randint(1, M, [1], generator=random))
    x = torch.randint(-4, 5, (num_tokens, H), generator=random).float().to(dtype)
    scales = torch.rand(num_tokens, H // 128, generator=random) if dtype.itemsize == 1 else None
    indices = torch.stack([torch.randperm(E, generator=random)[:K] for _ in range(num_tokens)]).to(torch.uint32)
    weights = torch.rand(num_tokens, K, generator=random)
    return [None if tensor is None else tensor.to(device) for tensor in (x, scales, indices, weights)]


def make(ranks, dp_size, dtype, maker=pplx_kernels.AllToAll.intranode, **more):
    return maker(max_num_tokens=M, num_experts=E, experts_per_token=K, rank=ranks.rank, world_size=ranks.size,
                 dp_size=dp_size, hidden_dim=H, hidden_dim_bytes=H * dtype.itemsize,
                 hidden_dim_scale_bytes=H // 128 * 4 if dtype.itemsize == 1 else 0, **more)


def check_round(ata, rank, size, dp_size, dtype, out_dtype, seed, split=False, bound=None):
    """A dispatch and its combine; every row, count, scale and sum."""
    num_groups, num_local = size // dp_size, E // size
    device = device_of(rank)
    groups = [tokens_of(group, dtype, seed, device) for group in range(num_groups)]
    x, scales, indices, weights = groups[rank // dp_size]
    counts = torch.full((num_local,), -1, dtype=torch.int32, device=device)
    expert_x = torch.zeros((num_local, M * num_groups, H), device=device).to(dtype)
    expert_scales = None if scales is None else torch.zeros((num_local, M * num_groups, H // 128), device=device)
    kept = len(x) if bound is None else min(bound, len(x))
    bound_m = torch.tensor([kept], dtype=torch.uint32, device=device)
    dispatch = dict(out_expert_num_tokens=counts, out_expert_x=expert_x, out_expert_x_scale=expert_scales, dp_x=x,
                    dp_x_scale=scales, indices=indices, bound_m=bound_m)
    for part in ((dict(do_recv=False), dict(do_send=False)) if split else (dict(),)):
        ata.dispatch(**dispatch, **part)

    for local in range(num_local):
        rows = [(group, token) for group in range(num_groups) for token in range(len(groups[group][0]))
                if (bound is None or token < bound) and rank * num_local + local in groups[group][2].tolist()[token]]
        assert counts[local] == len(rows)
        for i, (group, token) in enumerate(rows):
            assert torch.equal(expert_x[local, i].float(), groups[group][0][token].float())
            assert scales is None or torch.equal(expert_scales[local, i], groups[group][1][token])

    expert_y = (expert_x.float() * (rank + 1)).to(out_dtype)
    y = torch.full((M, H), torch.nan, dtype=out_dtype, device=device)
    combine = dict(out_tokens=y, indices=indices, weights=weights, expert_y=expert_y, bound_m=bound_m)
    for part in ((dict(do_recv=False), dict(do_send=False)) if split else (dict(),)):
        ata.combine(**combine, **part)
    owners = indices.view(torch.int32).long() // num_local + 1
    expected = (weights * owners).sum(1, keepdim=True) * x.float()
    torch.testing.assert_close(y[:kept].float(), expected[:kept], rtol=0.02, atol=0.02)
    assert (y[kept:len(x)] == 0).all() and torch.isnan(y[len(x):]).all()


def job(communicator, dp_size, dtype, out_dtype, **more):
    ata = make(communicator, dp_size, dtype, communicator=communicator)
    for seed in range(3):  # From the second round on the types are those of the first combine.
        check_round(ata, communicator.rank, communicator.size, dp_size, dtype, out_dtype, seed, **more)
    ata.destroy()
    ata.destroy()


@pytest.mark.parametrize("dp_size", [1, 2, 4])
def test_a_round_gives_what_one_token_at_a_time_gives(dp_size):
    run_threads(4, job, dp_size, torch.bfloat16, torch.bfloat16)


@pytest.mark.parametrize("dtype, out_dtype", [
    (torch.float8_e4m3fn, torch.bfloat16), (torch.float16, torch.float16), (torch.bfloat16, torch.float16),
    (torch.float32, torch.float32),
])
def test_types_may_be_any(dtype, out_dtype):
    run_threads(2, job, 1, dtype, out_dtype)


def test_halves_and_a_bound():
    run_threads(2, lambda communicator: job(communicator, 1, torch.bfloat16, torch.bfloat16, split=True, bound=4))
    run_threads(4, lambda communicator: job(communicator, 2, torch.float8_e4m3fn, torch.float16, split=True, bound=3))


def test_replicas_whose_shares_are_uneven():
    """Three tokens between two replicas, and none at all."""
    run_threads(2, lambda communicator: job(communicator, 2, torch.bfloat16, torch.bfloat16, bound=3))
    run_threads(2, lambda communicator: job(communicator, 2, torch.bfloat16, torch.bfloat16, bound=0))


def test_a_group_of_torch_is_enough(tmp_path):
    """By its name, or the default one; on one rank of gloo."""
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        for more in (dict(), dict(group_name=distributed.group.WORLD.group_name)):
            ata = pplx_kernels.AllToAll.intranode(
                max_num_tokens=M, num_experts=E, experts_per_token=K, rank=0, world_size=1, dp_size=1, hidden_dim=H,
                hidden_dim_bytes=2 * H, hidden_dim_scale_bytes=0, **more)
            check_round(ata, 0, 1, 1, torch.bfloat16, torch.bfloat16, 0)
            ata.destroy()
    finally:
        distributed.destroy_process_group()


def test_compiled_programs_leave_calls_out():
    class Compiled:
        def __init__(self, ata):
            self.dispatch = torch.compile(ata.dispatch, backend="eager")
            self.combine = torch.compile(ata.combine, backend="eager")

    def compiled(communicator):
        ata = make(communicator, 1, torch.bfloat16, communicator=communicator)
        check_round(Compiled(ata), 0, 1, 1, torch.bfloat16, torch.bfloat16, 0)

    run_threads(1, compiled)


def test_mistakes_are_named():
    def mistakes(communicator):
        for change, message in ((dict(dp_size=3), "dp_size is 3"), (dict(rank=5), "rank and world_size are 5 and 2")):
            given = dict(max_num_tokens=M, num_experts=E, experts_per_token=K, rank=communicator.rank, world_size=2,
                         dp_size=1, hidden_dim=H, hidden_dim_bytes=2 * H, hidden_dim_scale_bytes=0)
            with pytest.raises(moeway.InvalidArgumentError, match=message):
                pplx_kernels.AllToAll.intranode(**{**given, **change}, communicator=communicator)
        ata = make(communicator, 1, torch.bfloat16, communicator=communicator, out_dtype=torch.bfloat16)
        device = device_of(communicator.rank)
        x, _, indices, weights = tokens_of(0, torch.bfloat16, device=device)
        counts = torch.zeros(4, dtype=torch.int32, device=device)
        rows = torch.zeros(4, 2 * M, H, dtype=torch.bfloat16, device=device)
        with pytest.raises(moeway.WrongStateError, match="combine came before"):
            ata.combine(x, indices, weights, rows, None)
        with pytest.raises(moeway.InvalidArgumentError, match="rows of dp_x have 1024 bytes, expected at most 512"):
            ata.dispatch(counts, rows, None, x.float(), None, indices, None)
        with pytest.raises(moeway.InvalidArgumentError, match="expected neither of dp_x_scale"):
            ata.dispatch(counts, rows, None, x, torch.ones(M, 2, device=device), indices, None)
        ata.dispatch(counts, rows, None, x, None, indices, None)
        with pytest.raises(moeway.InvalidArgumentError, match="expected torch.bfloat16 and torch.bfloat16"):
            ata.combine(x.half(), indices, weights, rows.half(), None)

    run_threads(2, mistakes)


def internode(communicator, file):
    """As in a job of processes: an id from rank 0, here through a file."""
    if ON_GPUS:
        torch.cuda.set_device(device_of(communicator.rank))
    if communicator.rank == 0:
        torch.save(pplx_kernels.nvshmem_get_unique_id(), file)
    communicator.barrier()
    uid = torch.load(file)
    communicator.barrier()
    assert pplx_kernels.nvshmem_init(uid, communicator.rank, communicator.size) == 0
    assert (pplx_kernels.nvshmem_my_pe(), pplx_kernels.nvshmem_n_pes()) == (communicator.rank, communicator.size)
    ata = make(communicator, 1, torch.bfloat16, pplx_kernels.AllToAll.internode)
    check_round(ata, communicator.rank, communicator.size, 1, torch.bfloat16, torch.bfloat16, 0)
    ata.destroy()
    pplx_kernels.nvshmem_barrier_all()
    pplx_kernels.nvshmem_barrier_all_on_current_stream()
    pplx_kernels.nvshmem_finalize()
    with pytest.raises(moeway.WrongStateError):
        pplx_kernels.nvshmem_my_pe()


def test_processes_meet_by_a_unique_id(tmp_path):
    run_processes(2, internode, tmp_path / "uid")


def test_what_is_not_there_says_so():
    assert pplx_kernels.nvshmem_alloc_empty_unique_id().shape == (pplx_kernels.nvshmem_unique_id_size(),)
    with pytest.raises(NotImplementedError, match="nvshmem_malloc"):
        pplx_kernels.nvshmem_malloc([4], torch.int32, torch.device("cpu"))
    with pytest.raises(NotImplementedError, match="nvshmem_alltoall"):
        pplx_kernels.nvshmem_alltoall(torch.zeros(2), torch.zeros(2))


def test_installed_it_takes_the_original_s_name():
    with pytest.raises(moeway.InvalidArgumentError, match="expected deep_ep or pplx_kernels"):
        install("nccl")
    install("pplx_kernels")
    from pplx_kernels import AllToAll
    from pplx_kernels.nvshmem import nvshmem_init

    assert AllToAll is pplx_kernels.AllToAll and nvshmem_init is pplx_kernels.nvshmem_init
    for name in [name for name in sys.modules if name.startswith("pplx_kernels")]:
        del sys.modules[name]
