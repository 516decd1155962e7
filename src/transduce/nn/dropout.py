"""Dropout, as a part of its own so that every site in a model draws its randomness in one way."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zero each value with probability `rate` while training, and scale the rest by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, value: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return value
        return F.dropout(value, self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
