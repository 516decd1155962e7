"""What keeps the size of a position's vector: LayerNorm (the paper) or RMSNorm (Zhang & Sennrich 2019; T5, Llama)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

MakeNorm = Callable[[int], nn.Module]
"""Width -> a norm of its own."""

NORM: dict[str, type[nn.LayerNorm | nn.RMSNorm]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


def norms(kind: str, eps: float) -> MakeNorm:
    """Return what makes the norms of a stack; `eps` keeps a vector of zeros from being divided by zero."""
    return partial(NORM[kind], eps=eps)
