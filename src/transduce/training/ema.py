"""A running average of the weights, which is often better than the weights themselves (Polyak & Juditsky 1992)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from transduce.checkpoint import weights_of
from transduce.models.interface import Model
from transduce.training.sharding import spread_like


class Ema:
    """Each weight's exponential moving average; the newest weights count 1 - `decay`."""

    def __init__(self, model: Model, decay: float) -> None:
        self.model, self.decay = model, decay
        self.weights = {name: weight.detach().clone() for name, weight in weights_of(model).items()}

    def take_in(self, update: int) -> None:
        """Take in the weights of an update; early on they count more, so that the first ones do not linger."""
        decay = min(self.decay, (1 + update) / (10 + update))
        torch._foreach_lerp_(list(self.weights.values()), self._now(), 1.0 - decay)

    def put(self, weights: dict[str, Tensor]) -> None:
        """Go on from a saved average."""
        for name, weight in weights.items():
            self.weights[name].copy_(spread_like(weight, self.weights[name]))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model be its average while inside."""
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
