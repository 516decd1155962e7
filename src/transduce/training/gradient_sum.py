"""The gradient of an update, summed over micro-batches that several threads compute in parallel.

Gradients of large parameters are added and freed as soon as a backward pass has computed them, while they are in the
cache; small ones together at the end of a micro-batch, since each call from a backward pass into Python takes time. All
are added in the order of the micro-batches, so that the sum does not depend on which thread was faster.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

LARGE = 2**17
"""Values of a parameter whose gradient is not kept until the end of a micro-batch: half a megabyte."""


class GradientSum:
    """Sums the gradients of a model's copies into the model's own `grad`."""

    def __init__(self, model: nn.Module, twins: Sequence[nn.Module]) -> None:
        self._totals = list(model.parameters())
        self._small = {twin: [p for p in twin.parameters() if p.numel() < LARGE] for twin in (model, *twins)}
        self._next = [0] * len(self._totals)
        """For each parameter, the micro-batch that is added next."""
        self._turn = threading.Condition()
        self._parts: dict[nn.Module, int] = {}
        self._abandoned = False
        self._model, self._twins = model, set(twins)
        for twin in twins:
            for place, parameter in enumerate(twin.parameters()):
                if parameter.requires_grad and parameter.numel() >= LARGE:
                    add = partial(self._add, twin, place)
                    parameter.register_post_accumulate_grad_hook(add)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """Start a new sum."""
        self._next, self._abandoned = [0] * len(self._totals), False
        for parameter in self._totals:
            parameter.grad = None
        for twin in self._twins:  # the previous update may have failed half-way
            for parameter in self._small[twin]:
                parameter.grad = None

    def expect(self, twin: nn.Module, number: int) -> None:
        """Set the micro-batch that a copy computes now."""
        self._parts[twin] = number

    def finish(self, twin: nn.Module, number: int) -> None:
        """Add the small gradients, and let the next micro-batch continue where this one had none. Called in order."""
        if twin in self._twins:
            self._add_small(twin)
        with self._turn:
            self._next = [max(turn, number + 1) for turn in self._next]
            self._turn.notify_all()

    def abandon(self) -> None:
        """Release threads that wait for a micro-batch that failed; the sum is useless."""
        with self._turn:
            self._abandoned = True
            self._turn.notify_all()

    def _add_small(self, twin: nn.Module) -> None:
        sums, parts = [], []
        for total, own in zip(self._small[self._model], self._small[twin], strict=True):
            if total.grad is None:
                total.grad = own.grad
            elif own.grad is not None:
                sums.append(total.grad)
                parts.append(own.grad)
            own.grad = None
        if sums:
            torch._foreach_add_(sums, parts)

    def _add(self, twin: nn.Module, place: int, parameter: Tensor) -> None:
        number, total = self._parts[twin], self._totals[place]
        with self._turn:
            self._turn.wait_for(lambda: self._abandoned or self._next[place] == number)
        if total.grad is None:
            total.grad = parameter.grad
        elif parameter.grad is not None and not self._abandoned:
            total.grad += parameter.grad
        parameter.grad = None
        with self._turn:
            self._next[place] = number + 1
            self._turn.notify_all()
