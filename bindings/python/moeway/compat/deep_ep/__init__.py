"""The interface of DeepEP (its Buffer, as of version 1.2) over moeway. docs/compat.md says what differs."""

import torch

from moeway.compat.deep_ep.buffer import Buffer
from moeway.compat.deep_ep.events import Config, EventHandle, EventOverlap

topk_idx_t = torch.int64

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "topk_idx_t"]
