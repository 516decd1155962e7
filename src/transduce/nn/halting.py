"""Adaptive computation time (Graves 2016, arXiv 1603.08983): every position decides when to halt.

At each step a position spends a part of its halting probability; when the sum passes the threshold it halts, with the
remainder as its last part. The output is the mean of the states of all steps, weighted by these parts. The ponder cost
is the number of steps plus the remainder.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.nn.linear import Linear


@dataclass(frozen=True)
class Pondering:
    """The progress of each position."""

    state: Tensor
    """(B N D), the current state of each position; of a halted one, its last state."""
    mixed: Tensor
    """(B N D), the mean so far."""
    given: Tensor
    """(B N), cumulative halting probability."""
    cost: Tensor
    """(B N), steps so far; of a halted position, plus the remainder. Only the remainder has a gradient."""
    running: Tensor
    """(B N), positions that have not halted."""


class AdaptiveHalting(nn.Module):
    """Decides when positions halt."""

    def __init__(self, dim: int, threshold: float) -> None:
        super().__init__()
        self.probability = Linear(dim, 1)
        self.threshold = threshold

    def begin(self, state: Tensor, running: Tensor | None = None) -> Pondering:
        """The initial progress; padding does not run.  (B N D), (B N) -> pondering."""
        nothing_BN = torch.zeros_like(state[..., 0])
        running_BN = torch.ones_like(nothing_BN, dtype=torch.bool) if running is None else running
        return Pondering(state, torch.zeros_like(state), nothing_BN, nothing_BN, running_BN)

    def forward(self, pondering: Pondering, before: Tensor, after: Tensor, last: bool) -> Pondering:
        """Advance by one step, given its input and output; at the last, all positions halt.  (B N D), (B N D)."""
        running, given = pondering.running, pondering.given
        chance_BN = torch.sigmoid(self.probability(before)[..., 0])
        halts = running & ((given + chance_BN > self.threshold) | last)
        part_BN = torch.where(halts, 1.0 - given, chance_BN) * running
        rest_BN = torch.where(halts, 1.0 - given, 0.0)
        return Pondering(
            state=torch.where(running[..., None], after, pondering.state),
            mixed=pondering.mixed + part_BN[..., None] * after,
            given=given + part_BN,
            cost=pondering.cost + running.to(given.dtype) + rest_BN,
            running=running & ~halts,
        )
