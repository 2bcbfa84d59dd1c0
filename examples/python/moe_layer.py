"""A Mixture-of-Experts layer in torch, trained for a few steps with its experts spread over the ranks, and the same
layer trained in one process for comparison: losses and weights must agree.

    python3 moe_layer.py                     two processes on this machine's CPU
    python3 moe_layer.py --device cuda       two processes with a GPU each
    torchrun --nproc-per-node 2 moe_layer.py
"""

import argparse
import os
import tempfile

import moeway.torch
import torch
from torch import distributed

NUM_EXPERTS, TOPK, HIDDEN, INNER, TOKENS, STEPS = 6, 2, 32, 64, 16, 5
LEARNING_RATE = 0.5


class Router(torch.nn.Module):
    """Which experts a token goes to, and with which weights."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.randn(HIDDEN, NUM_EXPERTS) / HIDDEN**0.5)

    def forward(self, x):
        weights, experts = torch.softmax(x @ self.gate, dim=-1).topk(TOPK)
        return experts, weights


class Experts(torch.nn.Module):
    """Feed-forward networks, all of one shape, as one batched product over padded rows."""

    def __init__(self):
        super().__init__()
        self.up = torch.nn.Parameter(torch.randn(NUM_EXPERTS, HIDDEN, INNER) / HIDDEN**0.5)
        self.down = torch.nn.Parameter(torch.randn(NUM_EXPERTS, INNER, HIDDEN) / INNER**0.5)

    def keep(self, first, count):
        """Leaves the experts of one rank."""
        self.up = torch.nn.Parameter(self.up.data[first:first + count].clone())
        self.down = torch.nn.Parameter(self.down.data[first:first + count].clone())

    def forward(self, rows):
        return torch.bmm(torch.nn.functional.silu(torch.bmm(rows, self.up)), self.down)


class ParallelLayer(torch.nn.Module):
    """Router on every rank, experts on their owners."""

    def __init__(self, router, experts, all_to_all):
        super().__init__()
        self.router, self.experts, self.all_to_all = router, experts, all_to_all

    def forward(self, x):
        topk_idx, topk_weights = self.router(x)
        dispatched = self.all_to_all.dispatch(x, topk_idx, topk_weights)
        return x + self.all_to_all.combine(self.experts(dispatched.x), dispatched)


class SingleLayer(torch.nn.Module):
    """The same without any exchange: every token through every expert, most of it weighted by zero."""

    def __init__(self, router, experts):
        super().__init__()
        self.router, self.experts = router, experts

    def forward(self, x):
        topk_idx, topk_weights = self.router(x)
        weights = torch.zeros(len(x), NUM_EXPERTS, device=x.device).scatter(1, topk_idx, topk_weights)
        rows = self.experts(x.expand(NUM_EXPERTS, *x.shape))
        return x + torch.einsum("te,eth->th", weights, rows)


def batch(step, rank, device):
    """What one rank sees in one step: other numbers, and another number of tokens, on each."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    num_tokens = TOKENS - rank
    x, target = torch.randn(2, num_tokens, HIDDEN, generator=random).to(device)
    return x, target


def train(layer, batches_of, reduce):
    """A few steps of gradient descent; the losses. `reduce` adds up over ranks."""
    losses = []
    for step in range(STEPS):
        x, target = batches_of(step)
        num_tokens = reduce(torch.tensor(float(len(x)), device=x.device))
        loss = ((layer(x) - target) ** 2).mean(dim=1).sum() / num_tokens
        layer.zero_grad()
        loss.backward()
        # Gradients of experts have come from all ranks already; those of the router have not.
        reduce(layer.router.gate.grad)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter -= LEARNING_RATE * parameter.grad
        losses.append(reduce(loss.detach().clone()).item())
    return losses


def layers_of(rank, device_type):
    """The rank's device, and there a router and all experts, the same on every rank, and the layer in one process with copies
    of them."""
    device = device_type if device_type == "cpu" else f"cuda:{rank}"
    if device_type != "cpu":
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    router, experts = Router().to(device), Experts().to(device)
    single = SingleLayer(Router(), Experts()).to(device)
    single.router.load_state_dict(router.state_dict())
    single.experts.load_state_dict(experts.state_dict())
    return device, router, experts, single


def run_rank(rank, num_ranks, device_type):
    """Trains on this rank, compares with one process, and says so. Raises AssertionError where they differ."""
    device, router, experts, single = layers_of(rank, device_type)

    def add_up(tensor):
        distributed.all_reduce(tensor)
        return tensor

    with moeway.torch.communicator(device=device) as communicator, \
            moeway.torch.AllToAll(communicator, num_experts=NUM_EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens=TOKENS,
                                  dispatch_dtype="f32", row_dtype="f32", output_dtype="f32", distinct_experts=True,
                                  weights="at_combine") as all_to_all:
        first, count = all_to_all.sizes.first_local_expert, all_to_all.sizes.num_local_experts
        experts.keep(first, count)
        losses = train(ParallelLayer(router, experts, all_to_all), lambda step: batch(step, rank, device), add_up)

    def whole(step):
        parts = [batch(step, r, device) for r in range(num_ranks)]
        return torch.cat([x for x, _ in parts]), torch.cat([target for _, target in parts])

    expected = train(single, whole, lambda tensor: tensor)
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(router.gate, single.router.gate, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(experts.up, single.experts.up[first:first + count], rtol=1e-3, atol=1e-4)
    if rank == 0:
        print(f"losses on {num_ranks} ranks: {' '.join(f'{loss:.5f}' for loss in losses)}")
        print(f"losses in one process: {' '.join(f'{loss:.5f}' for loss in expected)}")
        print("they agree")


def start_rank(rank, run, num_ranks, device_type, meeting):
    """A process of its own."""
    backend = "gloo" if device_type == "cpu" else "nccl"
    distributed.init_process_group(backend, init_method=f"file://{meeting}/store", rank=rank, world_size=num_ranks)
    run(rank, num_ranks, device_type)
    distributed.destroy_process_group()


def main(run, description):
    """Calls run(rank, num_ranks, device_type) on every rank, as the command line says."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    if "LOCAL_RANK" in os.environ:  # torchrun has started us.
        distributed.init_process_group("gloo" if options.device == "cpu" else "nccl")
        run(distributed.get_rank(), distributed.get_world_size(), options.device)
        distributed.destroy_process_group()
        return
    with tempfile.TemporaryDirectory() as meeting:
        torch.multiprocessing.spawn(start_rank, (run, options.ranks, options.device, meeting), nprocs=options.ranks)


if __name__ == "__main__":
    main(run_rank, __doc__)
