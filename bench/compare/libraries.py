"""The libraries, each through its public interface, behind one: Library.

What is not installed, or cannot do what is asked, says so and is left out.
"""

import importlib
import importlib.metadata

import torch
from torch import distributed

from inputs import BLOCK, dequantised, factor_of


class Skipped(Exception):
    """A library is not measured; the message says why."""


def imported(module):
    """The module. Raises Skipped if it cannot be imported."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Skipped(f"{module} cannot be imported: {error}") from error


class Library:
    """Dispatch and combine of one shape. Made on all ranks together, as is every call.

    `captures`: its calls can be captured into a CUDA graph. `layout`: how rows come, padded for each expert or a row a token.
    """

    captures = True
    layout = "padded"

    def __init__(self, shape, rank, device):
        self.shape, self.rank, self.device = shape, rank, device

    def version(self):
        """Of the library that is measured."""
        return importlib.metadata.version(type(self).package)

    def dispatch(self, batch):
        """What has come, as the library gives it."""
        raise NotImplementedError

    def experts(self, received):
        """What the experts make of it: the bf16 rows that combine takes."""
        raise NotImplementedError

    def combine(self, batch, received, rows):
        """y [T, H] bf16. `rows` may be more than have come: other sets bring other numbers."""
        raise NotImplementedError

    def close(self):
        """Releases what the library holds."""

    def _padded_outputs(self, rows, scales):
        local = torch.arange(self.shape.num_local_experts, device=self.device)
        factors = factor_of(self.rank * self.shape.num_local_experts + local)
        return (dequantised(rows, scales) * factors[:, None, None]).bfloat16()

    def _token_outputs(self, rows, scales, idx, weights):
        """Rows of tokens, with the local experts [N, K] that they go to, -1 for none, and their weights."""
        factors = factor_of(idx + self.rank * self.shape.num_local_experts)
        factors = torch.where(idx >= 0, factors * weights, 0.0).sum(1, keepdim=True)
        return torch.where(factors > 0, dequantised(rows, scales) * factors, 0.0).bfloat16()


class Moeway(Library):
    """Outputs are taken once, as an engine would."""

    weights = "at_combine"

    def __init__(self, shape, rank, device):
        super().__init__(shape, rank, device)
        moeway = imported("moeway")
        fp8 = dict(dispatch_dtype="f8_e4m3", scales="f32") if shape.is_fp8 else {}
        if shape.dtype == "bf16-to-fp8":
            fp8["quantise"] = "largest"
        self._communicator = imported("moeway.torch").communicator(device=device)
        self._object = moeway.AllToAll(
            self._communicator, num_experts=shape.num_experts, topk=shape.topk, hidden=shape.hidden,
            max_tokens=shape.num_tokens, weights=self.weights, distinct_experts=True,
            layout="token_major" if self.layout == "token-major" else "expert_padded", **fp8)
        self._output = self._object.allocate_output("torch", first_row=False, row_source=False)
        self._y = torch.empty(shape.num_tokens, shape.hidden, dtype=torch.bfloat16, device=device)

    def version(self):
        return imported("moeway").__version__

    def dispatch(self, batch):
        weights = batch.topk_weights if self.weights == "at_dispatch" else None
        return self._object.dispatch(batch.x, batch.topk_idx, weights, batch.scales, self._output)[0]

    def experts(self, received):
        output = self._output
        if self.layout == "token-major":
            return self._token_outputs(output.x, output.scales, output.topk_idx, output.topk_weights)
        return self._padded_outputs(output.x, output.scales)

    def combine(self, batch, received, rows):
        weights = batch.topk_weights if self.weights == "at_combine" else None
        return self._object.combine(received, rows, weights, self._y)

    def close(self):
        self._object.close()
        self._communicator.close()


class MoewayWeightsAtDispatch(Moeway):
    """Rows are summed where the experts are."""

    weights = "at_dispatch"


class MoewayTokenMajor(Moeway):
    """One row a token and rank, already summed by the caller."""

    weights, layout = "at_dispatch", "token-major"


class PplxKernels(Library):
    """pplx_kernels.AllToAll."""

    module = package = "pplx_kernels"
    internode = False

    def __init__(self, shape, rank, device):
        super().__init__(shape, rank, device)
        if shape.dtype == "bf16-to-fp8":
            raise Skipped("pplx_kernels moves what it is given: quantisation is the caller's")
        pplx = imported(self.module)
        num_local, num_rows = shape.num_local_experts, shape.num_ranks * shape.num_tokens
        scale_bytes = shape.hidden // BLOCK * 4 if shape.is_fp8 else 0
        made = dict(max_num_tokens=shape.num_tokens, num_experts=shape.num_experts, experts_per_token=shape.topk,
                    rank=rank, world_size=shape.num_ranks, dp_size=1, hidden_dim=shape.hidden,
                    hidden_dim_bytes=shape.hidden * (1 if shape.is_fp8 else 2), hidden_dim_scale_bytes=scale_bytes)
        if self.internode:
            self._meet(imported(f"{self.module}.nvshmem"))
            self._object = pplx.AllToAll.internode(**made)
        else:
            group = distributed.group.WORLD.group_name
            self._object = pplx.AllToAll.intranode(**made, group_name=group)
        self._counts = torch.empty(num_local, dtype=torch.int32, device=device)
        dtype = torch.float8_e4m3fn if shape.is_fp8 else torch.bfloat16
        self._rows = torch.empty(num_local, num_rows, shape.hidden, dtype=dtype, device=device)
        self._scales = None
        if scale_bytes:
            self._scales = torch.empty(num_local, num_rows, shape.hidden // BLOCK, device=device)
        self._y = torch.empty(shape.num_tokens, shape.hidden, dtype=torch.bfloat16, device=device)
        self._indices = {}

    def _meet(self, nvshmem):
        unique = nvshmem.nvshmem_get_unique_id() if self.rank == 0 else nvshmem.nvshmem_alloc_empty_unique_id()
        distributed.broadcast(unique, src=0)
        nvshmem.nvshmem_init(unique, self.rank, self.shape.num_ranks)

    def _indices_of(self, batch):
        # It takes 32 bits; a router can give it those.
        key = batch.topk_idx.data_ptr()
        if key not in self._indices:
            self._indices[key] = batch.topk_idx.to(torch.uint32)
        return self._indices[key]

    def dispatch(self, batch):
        self._object.dispatch(
            out_expert_num_tokens=self._counts, out_expert_x=self._rows, out_expert_x_scale=self._scales, dp_x=batch.x,
            dp_x_scale=batch.scales, indices=self._indices_of(batch), bound_m=None)

    def experts(self, received):
        return self._padded_outputs(self._rows, self._scales)

    def combine(self, batch, received, rows):
        self._object.combine(out_tokens=self._y, indices=self._indices_of(batch), weights=batch.topk_weights,
                             expert_y=rows, bound_m=None)
        return self._y

    def close(self):
        self._object.destroy()
        if self.internode:
            imported(f"{self.module}.nvshmem").nvshmem_finalize()


class PplxKernelsInternode(PplxKernels):
    """Over NVSHMEM."""

    internode = True


class DeepEp(Library):
    """What all modes of DeepEP share."""

    module = package = "deep_ep"

    def close(self):
        self._buffer = None  # Its destructor releases it: destroy() is for buffers that were made to be destroyed.


class DeepEpLowLatency(DeepEp):
    """deep_ep.Buffer, the low-latency mode of its first version."""

    def __init__(self, shape, rank, device):
        super().__init__(shape, rank, device)
        if shape.dtype == "fp8":
            raise Skipped("the low-latency mode takes bf16 alone, and makes fp8 of it: --dtype bf16-to-fp8")
        deep_ep = imported(self.module)
        num_bytes = deep_ep.Buffer.get_low_latency_rdma_size_hint(shape.num_tokens, shape.hidden, shape.num_ranks,
                                                                  shape.num_experts)
        self._buffer = deep_ep.Buffer(distributed.group.WORLD, 0, num_bytes, low_latency_mode=True,
                                      num_qps_per_rank=shape.num_local_experts)

    def dispatch(self, batch):
        shape = self.shape
        rows, _, handle, _, _ = self._buffer.low_latency_dispatch(
            batch.x, batch.topk_idx, shape.num_tokens, shape.num_experts, use_fp8=shape.is_fp8)
        return rows, handle

    def experts(self, received):
        rows, scales = received[0] if self.shape.is_fp8 else (received[0], None)
        return self._padded_outputs(rows, scales)

    def combine(self, batch, received, rows):
        return self._buffer.low_latency_combine(rows, batch.topk_idx, batch.topk_weights, received[1])[0]


class DeepEpNormal(DeepEp):
    """deep_ep.Buffer, the mode for training and prefill of its first version. The host waits for counts."""

    captures, layout = False, "token-major"
    num_nvlink_bytes = 1 << 30

    def __init__(self, shape, rank, device):
        super().__init__(shape, rank, device)
        if shape.dtype == "bf16-to-fp8":
            raise Skipped("the normal mode moves what it is given: quantisation is the caller's")
        self._buffer = imported(self.module).Buffer(distributed.group.WORLD, self.num_nvlink_bytes, 0)

    def dispatch(self, batch):
        per_rank, per_node, per_expert, in_rank, _ = self._buffer.get_dispatch_layout(batch.topk_idx,
                                                                                      self.shape.num_experts)
        x = batch.x if batch.scales is None else (batch.x, batch.scales)
        return self._buffer.dispatch(
            x, num_tokens_per_rank=per_rank, num_tokens_per_rdma_rank=per_node, is_token_in_rank=in_rank,
            num_tokens_per_expert=per_expert, topk_idx=batch.topk_idx, topk_weights=batch.topk_weights)

    def experts(self, received):
        x, idx, weights = received[:3]
        rows, scales = x if isinstance(x, tuple) else (x, None)
        return self._token_outputs(rows, scales, idx, weights)

    def combine(self, batch, received, rows):
        x, handle = received[0], received[4]
        return self._buffer.combine(rows[:len(x[0] if isinstance(x, tuple) else x)], handle)[0]


class DeepEpElastic(DeepEpNormal):
    """deep_ep.ElasticBuffer, its second version, without waiting for counts."""

    captures = True

    def __init__(self, shape, rank, device):
        Library.__init__(self, shape, rank, device)
        if shape.dtype == "bf16-to-fp8":
            raise Skipped("ElasticBuffer moves what it is given: quantisation is the caller's")
        deep_ep = imported(self.module)
        if not hasattr(deep_ep, "ElasticBuffer"):
            raise Skipped(f"{self.module} has no ElasticBuffer: it is of the first version")
        self._buffer = deep_ep.ElasticBuffer(
            distributed.group.WORLD, num_max_tokens_per_rank=shape.num_tokens, hidden=shape.hidden,
            num_topk=shape.topk, use_fp8_dispatch=shape.is_fp8)

    def dispatch(self, batch):
        x = batch.x if batch.scales is None else (batch.x, batch.scales)
        received, idx, weights, handle, _ = self._buffer.dispatch(
            x, batch.topk_idx, batch.topk_weights, num_experts=self.shape.num_experts, do_cpu_sync=False)
        return received, idx, weights, None, handle


class TorchAllToAll(Library):
    """What is written with torch.distributed alone: a row a route, sorted by expert, numbers of rows sent ahead of them."""

    captures, layout = False, "packed"

    def version(self):
        return torch.__version__

    def dispatch(self, batch):
        shape = self.shape
        flat = batch.topk_idx.flatten()
        order = flat.argsort(stable=True)
        sent = torch.bincount(flat, minlength=shape.num_experts)
        come = torch.empty_like(sent)
        distributed.all_to_all_single(come, sent)
        sent_to = sent.view(shape.num_ranks, -1).sum(1).tolist()
        came_from = come.view(shape.num_ranks, -1).sum(1).tolist()
        tokens = order // shape.topk
        parts = [batch.x.view(torch.uint8)[tokens]]
        if batch.scales is not None:
            parts.append(batch.scales.view(torch.uint8)[tokens])
        elif shape.dtype == "bf16-to-fp8":
            parts = self._quantised(batch.x, tokens)
        got = [torch.empty(sum(came_from), part.shape[1], dtype=torch.uint8, device=self.device) for part in parts]
        for part, rows in zip(parts, got):
            distributed.all_to_all_single(rows, part, came_from, sent_to)
        return got, come, order, sent_to, came_from

    @staticmethod
    def _quantised(x, tokens):
        blocks = x.float().unflatten(1, (-1, BLOCK))
        scales = blocks.abs().amax(2).clamp(min=1e-4) / 448
        values = (blocks / scales[..., None]).flatten(1).to(torch.float8_e4m3fn)
        return [values.view(torch.uint8)[tokens], scales.view(torch.uint8)[tokens]]

    def experts(self, received):
        got, come = received[:2]
        local = torch.arange(self.shape.num_local_experts, device=self.device).repeat(self.shape.num_ranks)
        experts = (self.rank * self.shape.num_local_experts + local).repeat_interleave(come)
        rows = got[0].view(torch.float8_e4m3fn if self.shape.is_fp8 else torch.bfloat16)
        scales = got[1].view(torch.float32) if len(got) > 1 else None
        return (dequantised(rows, scales) * factor_of(experts)[:, None]).bfloat16()

    def combine(self, batch, received, rows):
        _, _, order, sent_to, came_from = received
        back = torch.empty(len(order), self.shape.hidden, dtype=torch.bfloat16, device=self.device)
        distributed.all_to_all_single(back, rows[:sum(came_from)], sent_to, came_from)
        weighted = back.float() * batch.topk_weights.flatten()[order][:, None]
        y = torch.zeros(self.shape.num_tokens, self.shape.hidden, device=self.device)
        return y.index_add_(0, order // self.shape.topk, weighted).bfloat16()


class MoewayAsPplxKernels(PplxKernels):
    """The front of the same name."""

    module = "moeway.compat.pplx_kernels"
    version = Moeway.version


class MoewayAsDeepEpLowLatency(DeepEpLowLatency):
    """The front of the same name."""

    module = "moeway.compat.deep_ep"
    version = Moeway.version


class MoewayAsDeepEpNormal(DeepEpNormal):
    """The front of the same name."""

    module = "moeway.compat.deep_ep"
    version = Moeway.version


LIBRARIES = {
    "moeway": Moeway,
    "moeway-weights-at-dispatch": MoewayWeightsAtDispatch,
    "moeway-token-major": MoewayTokenMajor,
    "moeway-as-pplx": MoewayAsPplxKernels,
    "moeway-as-deep-ep-low-latency": MoewayAsDeepEpLowLatency,
    "moeway-as-deep-ep-normal": MoewayAsDeepEpNormal,
    "pplx-intranode": PplxKernels,
    "pplx-internode": PplxKernelsInternode,
    "deep-ep-low-latency": DeepEpLowLatency,
    "deep-ep-normal": DeepEpNormal,
    "deep-ep-elastic": DeepEpElastic,
    "torch-all-to-all": TorchAllToAll,
}
