"""Inference with a Mixture-of-Experts layer whose experts are spread over the ranks. On GPUs the whole layer, from the router to
combine, is one CUDA graph, captured once and replayed for batches of any size; on CPUs the same calls run one by one. What
comes out is compared with the layer in one process.

    python3 moe_inference.py                     two processes on this machine's CPU
    python3 moe_inference.py --device cuda       two processes with a GPU each
    torchrun --nproc-per-node 2 moe_inference.py
"""

import moeway
import moeway.torch
import torch
from moe_layer import HIDDEN, NUM_EXPERTS, TOPK, layers_of, main

MOST_TOKENS, STEPS = 16, 12


class Inference:
    """The layer with memory of its own: inputs are copied in, and the graph reads and writes the same places each time."""

    def __init__(self, communicator, router, experts, device):
        self.router = router
        self.all_to_all = moeway.AllToAll(
            communicator, num_experts=NUM_EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens=MOST_TOKENS, dispatch_dtype="f32",
            row_dtype="f32", output_dtype="f32", distinct_experts=True)
        sizes = self.all_to_all.sizes
        experts.keep(sizes.first_local_expert, sizes.num_local_experts)
        self.experts = experts
        self.x = torch.zeros(MOST_TOKENS, HIDDEN, device=device)
        # Read on the device when the call runs: one graph serves every number of tokens.
        self.num_tokens = torch.zeros(1, dtype=torch.int32, device=device)
        self.received = self.all_to_all.allocate_output("torch", first_row=False, row_source=False)
        self.y = torch.zeros_like(self.x)
        self.graph = self._capture() if self.x.is_cuda else None

    def _run(self):
        topk_idx, topk_weights = self.router(self.x)
        routing, received = self.all_to_all.dispatch(self.x, topk_idx, topk_weights, output=self.received,
                                                     num_tokens=self.num_tokens)
        # Rows that hold nothing are worked on as well; combine leaves them out.
        self.all_to_all.combine(routing, self.experts(received.x), y=self.y)

    def _capture(self):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self._run()  # Whatever is set up at a first call is set up before the capture.
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._run()
        return graph

    def __call__(self, x):
        """y of the tokens x [T, HIDDEN], T from 0 to MOST_TOKENS; all ranks call together. Overwritten by the next call."""
        self.x[:len(x)].copy_(x)
        self.num_tokens.fill_(len(x))
        if self.graph is None:
            self._run()
        else:
            self.graph.replay()
        return self.y[:len(x)]


def batch(step, rank, device):
    """What a rank decodes in a step: any number of tokens, none of them in some."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    num_tokens = int(torch.randint(0, MOST_TOKENS + 1, (1,), generator=random))
    return torch.randn(num_tokens, HIDDEN, generator=random).to(device)


@torch.inference_mode()
def run_rank(rank, num_ranks, device_type):
    """Compares on this rank, and says so. Raises AssertionError where something differs."""
    device, router, experts, single = layers_of(rank, device_type)
    with moeway.torch.communicator(device=device) as communicator:
        layer = Inference(communicator, router, experts, device)
        num_tokens = 0
        for step in range(STEPS):
            x = batch(step, rank, device)
            torch.testing.assert_close(x + layer(x), single(x), rtol=1e-4, atol=1e-5)
            num_tokens += len(x)
        layer.all_to_all.status()  # What kernels found wrong, were there anything.
        layer.all_to_all.close()
    if rank == 0:
        how = "one by one" if layer.graph is None else "in one graph"
        print(f"{STEPS} steps {how} on {num_ranks} ranks, {num_tokens} tokens of rank 0")
        print("they agree")


if __name__ == "__main__":
    main(run_rank, __doc__)
