"""moeway with torch on CPU ranks: plain tensors, the operators under torch.compile, and gradients."""

import subprocess
import sys

import moeway
import pytest
from places import ON_GPUS, device_of
from ranks import run_threads

torch = pytest.importorskip("torch", reason="torch is not installed: none of the torch tests ran")

import moeway.torch  # noqa: E402

E, K, H, M = 5, 2, 8, 6


def inputs(rank, dtype=torch.float32, seed=0, device="cpu"):
    """A rank's x, topk_idx (with a -1) and topk_weights, which require gradients, on a device."""
    random = torch.Generator().manual_seed(100 * seed + rank)
    num_tokens = M - rank
    x = torch.randn(num_tokens, H, generator=random).to(device, dtype).requires_grad_()
    idx = torch.stack([torch.randperm(E, generator=random)[:K] for _ in range(num_tokens)])
    idx[0, 1] = -1
    weights = torch.rand(num_tokens, K, generator=random).to(device).requires_grad_()
    return x, idx.to(device), weights


def expert_parameters(device, dtype=torch.float32):
    random = torch.Generator().manual_seed(3)
    return (torch.randn(E, H, H, generator=random) / 3).to(device, dtype)


def gradient_of(y, rank):
    """What comes into backward on a rank."""
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(rank)).to(y.device)


def reference_layer(x, idx, weights, parameters):
    """The same layer on one rank: every token's experts in turn."""
    y = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for k in range(K):
        rows = torch.einsum("th,thg->tg", x, parameters[idx[:, k].clamp(min=0)]).tanh()
        y = y + torch.where(idx[:, k:k + 1] >= 0, weights[:, k:k + 1] * rows, 0)
    return y


def layer(all_to_all, x, idx, weights, local_parameters):
    """The layer of an expert-parallel rank, with padded rows."""
    dispatched = all_to_all.dispatch(x, idx, weights)
    rows = torch.bmm(dispatched.x, local_parameters).tanh()
    return all_to_all.combine(rows, dispatched)


def packed_layer(all_to_all, x, idx, weights, local_parameters):
    """With packed rows: experts one after another."""
    dispatched = all_to_all.dispatch(x, idx, weights)
    parts = [torch.zeros_like(dispatched.x)]
    for local, parameters in enumerate(local_parameters):
        first, count = int(dispatched.first_row[local]), int(dispatched.num_rows[local])
        mask = torch.zeros(len(dispatched.x), 1, device=x.device)
        mask[first:first + count] = 1
        parts.append(mask * (dispatched.x @ parameters).tanh())
    return all_to_all.combine(torch.stack(parts).sum(0), dispatched)


F32 = dict(num_experts=E, topk=K, hidden=H, max_tokens=M, dispatch_dtype="f32", row_dtype="f32", output_dtype="f32",
           distinct_experts=True)


def check_gradients(communicator, make_layer, **config):
    """y and all gradients of a rank against the layer on one rank, for three steps."""
    rank = communicator.rank
    device = device_of(rank)
    mine = slice(moeway.first_expert(rank, E, communicator.size), None)
    parameters = expert_parameters(device).requires_grad_()
    with moeway.torch.AllToAll(communicator, **{**F32, **config}) as all_to_all:
        local = parameters.detach()[mine][:all_to_all.sizes.num_local_experts].clone().requires_grad_()
        run = make_layer(all_to_all)
        for seed in range(3):
            x, idx, weights = inputs(rank, seed=seed, device=device)
            y = run(x, idx, weights, local)
            grad_y = gradient_of(y, rank)
            got = torch.autograd.grad((y * grad_y).sum(), [x, weights, local])
            expected_y = reference_layer(x, idx, weights, parameters)
            wanted = torch.autograd.grad((expected_y * grad_y).sum(), [x, weights])
            torch.testing.assert_close(y, expected_y)
            torch.testing.assert_close(got[0], wanted[0])
            torch.testing.assert_close(got[1], torch.where(idx >= 0, wanted[1], 0))
            # The experts' own gradients: the sum over all ranks' tokens.
            total = 0
            for source in range(communicator.size):
                y = reference_layer(*inputs(source, seed=seed, device=device), parameters)
                total = total + (y * gradient_of(y, source)).sum()
            wanted = torch.autograd.grad(total, parameters)[0][mine][:len(local)]
            torch.testing.assert_close(got[2], wanted)


def padded(all_to_all):
    return lambda *tensors: layer(all_to_all, *tensors)


def packed(all_to_all):
    return lambda *tensors: packed_layer(all_to_all, *tensors)


@pytest.mark.parametrize("weights", ["at_dispatch", "at_combine"])
@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_gradients_are_those_of_one_rank(num_ranks, weights):
    run_threads(num_ranks, lambda communicator: check_gradients(communicator, padded, weights=weights))


def test_gradients_of_packed_rows():
    run_threads(2, lambda communicator: check_gradients(communicator, packed, layout="expert_packed", alignment=4))


def test_gradients_when_an_expert_comes_twice():
    """One token, the same expert twice: two rows, two weights."""

    def job(communicator):
        with moeway.torch.AllToAll(communicator, **{**F32, "distinct_experts": False}) as all_to_all:
            device = device_of(communicator.rank)
            x = torch.randn(1, H, device=device, requires_grad=True)
            weights = torch.tensor([[0.25, 2.0]], device=device, requires_grad=True)
            parameters, first = expert_parameters(device), all_to_all.sizes.first_local_expert
            y = layer(all_to_all, x, torch.tensor([[3, 3]], device=device), weights,
                      parameters[first:first + all_to_all.sizes.num_local_experts])
            y.sum().backward()
            row = (x @ parameters[3]).tanh()
            torch.testing.assert_close(weights.grad, row.sum().expand(1, 2))

    run_threads(2, job)


def test_ranks_without_tokens_or_experts():
    """Two experts on three ranks; rank 1 has no tokens."""

    def job(communicator):
        with moeway.torch.AllToAll(communicator, **{**F32, "num_experts": 2}) as all_to_all:
            device, num_tokens = device_of(communicator.rank), 0 if communicator.rank == 1 else 3
            x = torch.randn(num_tokens, H, device=device, requires_grad=True)
            weights = torch.rand(num_tokens, K, device=device, requires_grad=True)
            dispatched = all_to_all.dispatch(x, torch.tensor([[1, 0]], device=device).expand(num_tokens, K), weights)
            y = all_to_all.combine(2 * dispatched.x, dispatched)
            y.sum().backward()
            torch.testing.assert_close(y, 2 * weights.sum(1, keepdim=True) * x)
            torch.testing.assert_close(x.grad, 2 * weights.sum(1, keepdim=True).expand(x.shape))
            torch.testing.assert_close(weights.grad, 2 * x.sum(1, keepdim=True).expand(weights.shape))

    run_threads(3, job)


def test_fp8_travels_without_gradients():
    def job(communicator):
        config = dict(num_experts=E, topk=K, hidden=128, max_tokens=M, dispatch_dtype="f8_e4m3", scales="f32")
        with moeway.torch.AllToAll(communicator, differentiable=False, **config) as all_to_all:
            device = device_of(communicator.rank)
            x = torch.full((2, 128), 2.0, device=device).to(torch.float8_e4m3fn)
            scales = torch.full((2, 1), 3.0 + communicator.rank, device=device)
            idx, ones = torch.tensor([[0, 4], [2, -1]], device=device), torch.ones(2, K, device=device)
            dispatched = all_to_all.dispatch(x, idx, ones, scales)
            rows = dispatched.x.bfloat16() * dispatched.scales.bfloat16()
            y = all_to_all.combine(rows, dispatched)
            assert (y[0] == 4 * (3 + communicator.rank)).all() and (y[1] == 2 * (3 + communicator.rank)).all()

    run_threads(2, job)


def test_a_dispatch_has_a_gradient_without_a_combine():
    def job(communicator):
        with moeway.torch.AllToAll(communicator, **F32) as all_to_all:
            x, idx, weights = inputs(communicator.rank, device=device_of(communicator.rank))
            dispatched = all_to_all.dispatch(x, idx, weights)
            (2 * dispatched.x).sum().backward()
            torch.testing.assert_close(x.grad, 2.0 * (idx >= 0).sum(1, keepdim=True).expand(x.shape))

    run_threads(2, job)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_train(dtype):
    name = "bf16" if dtype == torch.bfloat16 else "f16"

    def job(communicator):
        types = dict(dispatch_dtype=name, row_dtype=name, output_dtype=name)
        with moeway.torch.AllToAll(communicator, **{**F32, **types}) as all_to_all:
            device = device_of(communicator.rank)
            x, idx, weights = inputs(communicator.rank, dtype, device=device)
            first, count = all_to_all.sizes.first_local_expert, all_to_all.sizes.num_local_experts
            parameters = expert_parameters(device, dtype)
            y = layer(all_to_all, x, idx, weights, parameters[first:first + count])
            assert y.dtype == dtype
            y.float().sum().backward()
            x32 = x.detach().float().requires_grad_()
            reference_layer(x32, idx, weights.detach(), parameters.float()).sum().backward()
            torch.testing.assert_close(x.grad.float(), x32.grad, rtol=0.05, atol=0.05)

    run_threads(2, job)


def test_compiles_without_a_break():
    """Forward and backward. On one rank: torch.compile is not for several threads at a time."""

    def compiled(all_to_all):
        return torch.compile(padded(all_to_all), backend="aot_eager", fullgraph=True)

    run_threads(1, lambda communicator: check_gradients(communicator, compiled))


def test_operators_are_what_they_say():
    """torch's own checks: schema, fake tensors against real ones, autograd registration, AOT dispatch."""

    def job(communicator):
        with moeway.torch.AllToAll(communicator, **F32) as all_to_all:
            x, idx, weights = inputs(0, device=device_of(0))
            checks = ("test_schema", "test_autograd_registration", "test_faketensor")
            torch.library.opcheck(torch.ops.moeway.dispatch.default,
                                  (x, idx, weights.detach(), None, all_to_all._number), test_utils=checks)

    run_threads(1, job)


def test_plain_calls_take_torch_tensors():
    def job(communicator):
        config = dict(num_experts=E, topk=K, hidden=H, max_tokens=M, distinct_experts=True)
        with moeway.AllToAll(communicator, **config) as all_to_all:
            x, idx, weights = inputs(communicator.rank, torch.bfloat16, device=device_of(communicator.rank))
            routing, output = all_to_all.dispatch(x, idx, weights)
            assert output.x.dtype == torch.bfloat16 and output.first_row.dtype == torch.int64
            y = all_to_all.combine(routing, output.x)
            assert y.dtype == torch.bfloat16
            total = torch.where(idx >= 0, weights, 0).sum(1, keepdim=True)
            torch.testing.assert_close(y.float(), (total * x.float()).detach(), rtol=0.02, atol=0.02)

    run_threads(2, job)


def test_a_view_is_a_torch_tensor():
    def job(communicator):
        config = dict(num_experts=1, topk=1, hidden=128, max_tokens=2, layout="token_major", dispatch_dtype="f8_e4m3",
                      scales="ue8m0")
        with moeway.AllToAll(communicator, **config) as all_to_all:
            device = device_of(communicator.rank)
            x = torch.full((2, 128), 2.0, device=device).to(torch.float8_e4m3fn)
            scales = torch.full((2, 1), 126, dtype=torch.uint8, device=device)
            idx, one = torch.zeros(2, 1, dtype=torch.int32, device=device), torch.ones(2, 1, device=device)
            routing = all_to_all.dispatch_send(x, idx, one, scales)
            all_to_all.dispatch_recv(routing, all_to_all.allocate_output("torch", in_heap=True))
            received, received_scales = all_to_all.view(routing)
            assert received.dtype == torch.float8_e4m3fn and (received.float() == 2).all()
            assert (received_scales.view(torch.uint8) == 126).all()

    run_threads(1, job)


@pytest.mark.parametrize("config, message", [
    (dict(layout="token_major"), "layout is token_major"),
    (dict(output_dtype="bf16"), "dispatch_dtype must be output_dtype"),
    (dict(dispatch_dtype="f8_e4m3", scales="f32", output_dtype="bf16"), "differentiable=False"),
])
def test_what_cannot_be_trained_is_refused(config, message):
    def job(communicator):
        with pytest.raises(moeway.InvalidArgumentError, match=message):
            moeway.torch.AllToAll(communicator, **{**F32, **config})

    run_threads(1, job)


@pytest.mark.skipif(ON_GPUS, reason="what a kernel finds in the routing is raised by a later call")
def test_the_operators_raise_the_library_s_errors():
    def job(communicator):
        with moeway.torch.AllToAll(communicator, **F32) as all_to_all:
            x, idx, weights = inputs(0)
            with pytest.raises(moeway.InvalidArgumentError, match="topk_idx"):
                all_to_all.dispatch(x, idx + E, weights)
        all_to_all.close()
        with pytest.raises(moeway.WrongStateError):
            all_to_all.dispatch(x, idx, weights)

    run_threads(1, job)


def test_moeway_itself_does_not_import_torch():
    code = f"import sys; sys.path[:0] = {sys.path!r}; import moeway; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-B", "-c", code], check=False).returncode == 0
