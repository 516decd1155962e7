"""How surprised a model is by the right answer, per token."""

from __future__ import annotations

import math

from transduce.errors import DataError


def perplexity(loss_sum: float, tokens: int) -> float:
    """Return exp(loss per token), the loss in nats and without label smoothing.

    An untrained or broken model may have a loss whose exponential no float can hold: that is infinity, not a crash.
    """
    if tokens <= 0:
        raise DataError("perplexity needs at least one token; the corpus has none")
    try:
        return math.exp(loss_sum / tokens)
    except OverflowError:
        return math.inf


def finite(value: float) -> float | None:
    """Return a number that JSON has, or None for infinity, which it has not."""
    return value if math.isfinite(value) else None


def bits_per_byte(loss_sum: float, size: int) -> float:
    """Return what a text would take if it were packed by the model, in bits for each byte of its UTF-8.

    Unlike perplexity, this compares models with different tokens.
    """
    if size <= 0:
        raise DataError("bits per byte need at least one byte; the text has none")
    return loss_sum / math.log(2) / size
