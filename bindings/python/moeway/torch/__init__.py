"""moeway for torch: dispatch and combine as operators that torch.compile keeps in its graph and autograd goes through.

    communicator = moeway.torch.communicator()             # the ranks of the default process group
    all_to_all = moeway.torch.AllToAll(communicator, num_experts=64, topk=4, hidden=1024, max_tokens=256)
    dispatched = all_to_all.dispatch(x, topk_idx, topk_weights)
    y = all_to_all.combine(experts(dispatched.x), dispatched)

Plain moeway.AllToAll takes torch tensors as well, without a gradient and without allocating anything.
"""

from moeway.torch.all_to_all import AllToAll, Dispatched
from moeway.torch.process_group import communicator

__all__ = ["AllToAll", "Dispatched", "communicator"]
