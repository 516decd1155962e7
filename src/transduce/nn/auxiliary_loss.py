"""Auxiliary losses: costs that arise inside a model and are added to its objective, such as ponder time.

A model's methods return vectors only. A cost is given to an `AuxiliaryLoss` module, as attention weights are given to a
hook point; the objective collects it during the forward pass, otherwise it is discarded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from torch import Tensor, nn


class AuxiliaryLoss(nn.Module):
    """Collects a cost per position of one side."""

    def __init__(self, side: Literal["source", "target"], weight: float) -> None:
        """`weight` is the coefficient of the cost. Source padding must have zero cost: it is not masked later."""
        super().__init__()
        self.side, self.weight = side, weight
        self.collected: list[Tensor] | None = None

    def forward(self, cost: Tensor) -> None:
        """(B N)."""
        if self.collected is not None and self.weight > 0:
            self.collected.append(self.weight * cost)


@contextmanager
def collect_losses(losses: Sequence[AuxiliaryLoss]) -> Iterator[list[tuple[str, Tensor]]]:
    """Collect the costs of the forward passes inside the context: filled when it ends with (side, costs (B N))."""
    found: list[tuple[str, Tensor]] = []
    for loss in losses:
        loss.collected = []
    try:
        yield found
    finally:
        for loss in losses:
            found += [(loss.side, cost) for cost in loss.collected or []]
            loss.collected = None
