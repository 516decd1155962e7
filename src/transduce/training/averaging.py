"""Averages of weights: over checkpoints (section 6.1), and a moving average over updates (Polyak & Juditsky 1992)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from transduce.model_folder import load_weights, weights_of
from transduce.models.interface import Model
from transduce.training.distributed.sharding import spread_like


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of each weight over checkpoints, summed in float64, with one checkpoint in memory at a time."""
    assert files, "there is nothing to average"
    total: dict[str, Tensor] = {}
    for file in files:
        for name, weight in load_weights(file).items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    return {name: (weight / len(files)).to(torch.float32) for name, weight in total.items()}


class Ema:
    """Exponential moving average of the weights: those of an update enter with weight 1 - `decay`."""

    def __init__(self, model: Model, decay: float) -> None:
        self.model, self.decay = model, decay
        self.weights = {name: weight.detach().clone() for name, weight in weights_of(model).items()}

    def update(self, update: int) -> None:
        """Add the weights of an update; early ones count more, so that the random initialisation does not linger."""
        decay = min(self.decay, (1 + update) / (10 + update))
        torch._foreach_lerp_(list(self.weights.values()), self._now(), 1.0 - decay)

    def put(self, weights: dict[str, Tensor]) -> None:
        """Restore a saved average."""
        for name, weight in weights.items():
            self.weights[name].copy_(spread_like(weight, self.weights[name]))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model its averaged weights inside the context."""
        kept = [weight.clone() for weight in self._now()]
        self._set(list(self.weights.values()))
        try:
            yield
        finally:
            self._set(kept)

    def _now(self) -> list[Tensor]:
        return [weight.detach() for weight in weights_of(self.model).values()]

    def _set(self, values: list[Tensor]) -> None:
        for weight, value in zip(self._now(), values, strict=True):
            weight.copy_(value)
