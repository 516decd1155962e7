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
