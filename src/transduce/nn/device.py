"""Where a value can be read: on a CPU at once, on a GPU only after all work that is queued for it."""

from __future__ import annotations

from torch import Tensor

AT_HAND = ("cpu", "meta")
"""Devices whose values cost nothing to read; on `meta` those who count operations supply them."""


def is_at_hand(tensor: Tensor) -> bool:
    """Whether reading a value of this tensor waits for nothing."""
    return tensor.device.type in AT_HAND


def is_full(allowed: Tensor) -> bool:
    """Whether a mask is known to be all true, so that it can be left out; of a GPU's it is never known."""
    return is_at_hand(allowed) and bool(allowed.all())
