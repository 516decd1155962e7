"""Costs that arise within a model and belong to what is minimised, such as thinking for long.

A model's two faces return vectors and nothing else. So a cost passes a place of its own, as attention weights pass a
tap, and whoever minimises listens there while the model reads; otherwise it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from torch import Tensor, nn


class ExtraLoss(nn.Module):
    """Where a cost for each position of one side passes."""

    def __init__(self, side: Literal["source", "target"], weight: float) -> None:
        """`weight` is what one of it costs, in nats. Padding of a source must cost nothing: nobody masks it later."""
        super().__init__()
        self.side, self.weight = side, weight
        self.heard: list[Tensor] | None = None

    def forward(self, cost: Tensor) -> None:
        """(B N)."""
        if self.heard is not None and self.weight > 0:
            self.heard.append(self.weight * cost)


@contextmanager
def listening(places: Sequence[ExtraLoss]) -> Iterator[list[tuple[str, Tensor]]]:
    """Collect what passes while the context lasts; filled when it ends: the side, and the costs (B N)."""
    found: list[tuple[str, Tensor]] = []
    for place in places:
        place.heard = []
    try:
        yield found
    finally:
        for place in places:
            found += [(place.side, cost) for cost in place.heard or []]
            place.heard = None
