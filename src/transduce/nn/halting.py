"""Adaptive computation time (Graves 2016, arXiv 1603.08983): every position says for itself when it has thought enough.

At each step a position gives away a part of its probability; when almost all is given it halts, with the rest as its
last part. What comes out is the mean of what it thought at each step, by these parts. Thinking costs: the number of
steps plus the rest is what a loss may be charged for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.nn.linear import Linear


@dataclass(frozen=True)
class Pondering:
    """How far each position has come."""

    state: Tensor
    """(B N D), what each position thinks now; of one that has halted, what it thought then."""
    mixed: Tensor
    """(B N D), the mean so far."""
    given: Tensor
    """(B N), probability given away."""
    cost: Tensor
    """(B N), steps so far; of a position that has halted, plus the rest. Only the rest has a gradient."""
    running: Tensor
    """(B N), who has not halted."""


class AdaptiveHalting(nn.Module):
    """Decides when positions halt."""

    def __init__(self, dim: int, threshold: float) -> None:
        super().__init__()
        self.probability = Linear(dim, 1)
        self.threshold = threshold

    def begin(self, state: Tensor, running: Tensor | None = None) -> Pondering:
        """Nothing was thought yet; padding need not think at all.  (B N D), (B N) -> pondering."""
        nothing_BN = torch.zeros_like(state[..., 0])
        running_BN = torch.ones_like(nothing_BN, dtype=torch.bool) if running is None else running
        return Pondering(state, torch.zeros_like(state), nothing_BN, nothing_BN, running_BN)

    def forward(self, pondering: Pondering, before: Tensor, after: Tensor, last: bool) -> Pondering:
        """Take one step, from what went into it and what came out; at the last, everybody halts.  (B N D), (B N D)."""
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
