"""The precision of sums that are longer than float32 is good for."""

from __future__ import annotations

import torch


def widest(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on Apple's MPS, which has nothing wider."""
    return torch.float32 if device.type == "mps" else torch.float64
