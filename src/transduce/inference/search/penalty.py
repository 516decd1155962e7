"""Length penalties: what a hypothesis' log-probability is divided by before hypotheses are compared.

Lengths count every token that has a probability, so the end token too, as CTranslate2 and fairseq do.
"""

from __future__ import annotations

from collections.abc import Callable


def gnmt(length: int, alpha: float) -> float:
    """((5 + n) / 6)^α, equation 14 of Wu et al. 2016, as the paper decodes with."""
    return float(((5.0 + length) / 6.0) ** alpha)


def power(length: int, alpha: float) -> float:
    """n^α; α = 1 is the mean log-probability per token. Nothing at all counts as one token."""
    return float(max(1, length) ** alpha)


LENGTH_PENALTIES: dict[str, Callable[[int, float], float]] = {"gnmt": gnmt, "power": power}
