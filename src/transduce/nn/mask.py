"""Attention masks: boolean, True means "may attend"."""

from __future__ import annotations

import torch
from torch import Tensor


def padding_allowed(tokens: Tensor, pad: int) -> Tensor:
    """Return which positions hold a real token.  (B S) -> (B S)."""
    return tokens != pad


def causal_allowed(length: int, device: torch.device | None = None) -> Tensor:
    """Return the triangle of section 3.2.3: position q may attend to m <= q.  -> (length, length)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def and_causal(allowed: Tensor | None, length: int, device: torch.device) -> Tensor:
    """Combine a mask with the causal triangle.  (B 1 1 N) or None -> (B 1 N N) or (1 1 N N)."""
    triangle_NN = causal_allowed(length, device)[None, None]
    return triangle_NN if allowed is None else allowed & triangle_NN
