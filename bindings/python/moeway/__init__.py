"""Token exchange between ranks for expert parallelism in Mixture-of-Experts models.

*dispatch* takes each token to the ranks that own its experts, *combine* brings the experts' rows back and adds them up.
docs/python.md shows how; the contracts are those of the C interface, c_api.h.
"""

from moeway._library import has_cuda, version
from moeway.all_to_all import AllToAll, AllToAllStats, DispatchOutput, PeerStats, Routing
from moeway.bootstrap import Bootstrap, ThreadGroup
from moeway.communicator import Communicator
from moeway.config import AllToAllConfig, AllToAllSizes, expert_owner, first_expert, num_local_experts, sizes_of
from moeway.enums import DeviceType, DType, Execution, Layout, Overflow, Quantise, Scales, Weights
from moeway.errors import (DeadlineExceededError, InternalError, InvalidArgumentError, MismatchError, MoewayError,
                           OutOfMemoryError, PeerLostError, RowOverflowError, UnavailableError, WrongStateError)
from moeway.tensor import Tensor

__version__ = version()

__all__ = [
    "AllToAll", "AllToAllConfig", "AllToAllSizes", "AllToAllStats", "Bootstrap", "Communicator", "DType",
    "DeadlineExceededError", "DeviceType", "DispatchOutput", "Execution", "InternalError", "InvalidArgumentError",
    "Layout", "MismatchError", "MoewayError", "OutOfMemoryError", "Overflow", "PeerLostError", "PeerStats", "Quantise",
    "Routing", "RowOverflowError", "Scales", "Tensor", "ThreadGroup", "UnavailableError", "Weights", "WrongStateError",
    "expert_owner", "first_expert",
    "has_cuda", "num_local_experts", "sizes_of", "version",
]
