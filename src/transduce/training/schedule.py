"""Learning-rate schedules. Updates count from one."""

from __future__ import annotations

import math
from collections.abc import Callable

from transduce.training.config import TrainingConfig

Schedule = Callable[[int], float]
"""update -> learning rate."""

ENDING = ("cosine", "linear")
"""Schedules that depend on the number of updates of the run."""


def noam(factor: float, model_dim: int, warmup: int) -> Schedule:
    """factor · d^-0.5 · min(update^-0.5, update · warmup^-1.5): section 5.3."""

    def rate(update: int) -> float:
        rising = update * warmup**-1.5 if warmup else math.inf
        return float(factor * model_dim**-0.5 * min(update**-0.5, rising))

    return rate


def inverse_sqrt(peak: float, warmup: int) -> Schedule:
    """Linear warmup to the peak, then inverse square root: noam with an explicit peak."""

    def rate(update: int) -> float:
        steps = max(1, warmup)
        return peak * min(update / steps, math.sqrt(steps / update))

    return rate


def cosine(peak: float, warmup: int, updates: int) -> Schedule:
    """Linear warmup, then half a cosine to zero at the last update."""

    def rate(update: int) -> float:
        if update <= warmup:
            return peak * update / warmup
        done = (update - warmup) / max(1, updates - warmup)
        return 0.5 * peak * (1.0 + math.cos(math.pi * min(1.0, done)))

    return rate


def linear(peak: float, warmup: int, updates: int) -> Schedule:
    """Linear warmup, then linear decay to zero just after the last update."""

    def rate(update: int) -> float:
        if update <= warmup:
            return peak * update / warmup
        return peak * max(0.0, 1.0 - (update - warmup - 1) / max(1, updates - warmup))

    return rate


def constant(peak: float, warmup: int) -> Schedule:
    """Linear warmup, then constant."""
    return lambda update: peak * min(1.0, update / max(1, warmup))


def build_schedule(config: TrainingConfig, model_dim: int) -> Schedule:
    """Return the schedule of `training.schedule`."""
    rate, warmup, updates = config.learning_rate, config.warmup, config.updates
    schedules: dict[str, Callable[[], Schedule]] = {
        "noam": lambda: noam(rate, model_dim, warmup),
        "inverse_sqrt": lambda: inverse_sqrt(rate, warmup),
        "cosine": lambda: cosine(rate, warmup, updates),
        "linear": lambda: linear(rate, warmup, updates),
        "constant": lambda: constant(rate, warmup),
    }
    return schedules[config.schedule]()
