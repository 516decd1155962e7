"""Depth as time: what both forms of the Universal Transformer share (Dehghani et al. 2019, section 2).

A block is applied again and again to a state that is told before every step where each position stands and which step
it is; each position halts when it has thought enough, or all take as many steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from transduce.models.block import BlockConfig, Layers
from transduce.nn.coordinate import Coordinates
from transduce.nn.halting import AdaptiveHalting

Think = Callable[[Tensor, int], Tensor]
"""One step: (what each position is and is told (B N D), the number of the step) -> (B N D)."""


class PonderingConfig(BlockConfig):
    """Sizes and choices of a block that is applied again and again; the defaults are the paper's base model."""

    num_layers: Layers = 6
    """How often the block of each side is applied, at most; the paper's T."""
    positions: Literal["sinusoidal"] = "sinusoidal"
    """Where a token stands, and at which step: signals added before every step."""
    attention: Literal["full"] = "full"
    """What self-attention looks at; every step would need a past of its own kind otherwise."""
    halting: bool = True
    """Let every position halt by itself; otherwise all take num_layers steps."""
    halting_threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.99
    """How much of its probability a position has given away when it halts."""
    ponder_cost: Annotated[float, Field(ge=0.0, le=100.0)] = 0.01
    """What a step of a position costs, in nats of the loss."""
    max_offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """In training, positions begin at random, at most here, both sides' at the same place: for texts longer than any
    that was learnt."""
    scaled_embedding: bool = True
    """Multiply embeddings by the root of their width."""

    def make_halting(self) -> AdaptiveHalting | None:
        """What says when positions halt, if they do."""
        return AdaptiveHalting(self.model_dim, self.halting_threshold) if self.halting else None


def ponder(
    think: Think,
    hidden: Tensor,
    places: Tensor,
    coordinates: Coordinates,
    halting: AdaptiveHalting | None,
    steps: int,
    real: Tensor | None = None,
    stops_early: bool = True,
) -> tuple[Tensor, Tensor]:
    """Think until everybody has halted, or `steps` times; `real` (B N) says who has to think at all.

    Later tokens look at every step of earlier ones, so while decoding nobody stops early; nor where somebody listens,
    who would hear a step that depends on the neighbours in the batch. -> (B N D), costs (B N).
    """
    if halting is None:
        for step in range(steps):
            hidden = think(hidden + places + coordinates.of_step(step), step)
        return hidden, torch.zeros_like(hidden[..., 0])
    pondering = halting.begin(hidden, real)
    for step in range(steps):
        entering = pondering.state + places + coordinates.of_step(step)
        pondering = halting(pondering, entering, think(entering, step), last=step == steps - 1)
        if stops_early and not bool(pondering.running.any()):
            break
    return pondering.mixed, pondering.cost


def signals_from(offset: Tensor, length: int, coordinates: Coordinates, max_offset: int) -> Tensor:
    """The signals of positions that begin at an offset, at most `max_offset`.  (B) -> (B N D)."""
    place_BN = offset[:, None] + torch.arange(length, device=offset.device)
    return coordinates.at(place_BN, max_offset + length)
