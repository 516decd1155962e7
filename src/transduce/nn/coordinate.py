"""Coordinates of the Universal Transformer: where a token stands and how often it was thought about, added as signals.

In training, positions may begin anywhere instead of at 0 (section 3 of its paper's experiments with length), so that
those beyond the longest training text are not strange. Where a row begins is keyed like dropout: resuming and slicing
change nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transduce.nn.dropout import Dropout, keyed_bits
from transduce.nn.position import SinusoidalPositions


class Coordinates(nn.Module):
    """sinusoid(position) + sinusoid(step), steps counted from 1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.signals = SinusoidalPositions(dim)

    def at(self, positions: Tensor, longest: int) -> Tensor:
        """The signals of positions below `longest`.  (B N) -> (B N D)."""
        return self.signals.at(positions, longest)

    def of_step(self, step: int) -> Tensor:
        """The signal of a step, counted from 0.  -> (D)."""
        return self.signals.first(step + 2)[step + 1]


class RandomOffsets(nn.Module):
    """Where positions of each row begin: at 0, or in training at most at `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.site = Dropout(0.0)
        """Has the key of the pass, like every dropout of the model."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(B N) -> (B)."""
        if not self.training or self.most == 0:
            return torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        if self.site.key is None or tokens.device.type != "cpu":
            return torch.randint(0, self.most + 1, (len(tokens),), device=tokens.device)
        bits_B2 = keyed_bits(self.site.key, self.site.site, self.site.calls, tokens.new_zeros(len(tokens), 2)).long()
        self.site.calls += 1
        return ((bits_B2[:, 0] + 2**15) * 2**16 + bits_B2[:, 1] + 2**15) % (self.most + 1)
