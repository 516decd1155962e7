"""Penalties on finished hypotheses: the length penalty, and the coverage penalty of Wu et al. 2016.

To add a length penalty, write its function here, put it into `LENGTH_PENALTIES`, add its name to
`options.LengthNormalization`, and mention it in the help of `cli/options.py`. It must grow with the length: the stop
rule `exact` relies on it. Every score is computed by `normalize`.

Lengths count every token that has a probability, so the end token too, as CTranslate2 and fairseq do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from transduce.inference.alignment import AttentionWeights, cross_attention
from transduce.inference.search.options import LengthNormalization, SearchOptions
from transduce.models.interface import AnyTransducer
from transduce.text.tokenizer.special import Specials


def gnmt(length: int, alpha: float) -> float:
    """((5 + n) / 6)^α, equation 14 of Wu et al. 2016, as the paper decodes with."""
    return float(((5.0 + length) / 6.0) ** alpha)


def power(length: int, alpha: float) -> float:
    """n^α; α = 1 is the mean log-probability per token. An empty hypothesis counts as one token."""
    return float(max(1, length) ** alpha)


LENGTH_PENALTIES: dict[LengthNormalization, Callable[[int, float], float]] = {"gnmt": gnmt, "power": power}


def normalize(log_probability: float, length: int, options: SearchOptions) -> float:
    """Return the score of `length` tokens: their log-probability divided by the length penalty."""
    return log_probability / LENGTH_PENALTIES[options.length_normalization](length, options.length_penalty)


MIN_ATTENTION = 1e-6
"""Total attention that counts as none at all."""


def coverage(
    model: AnyTransducer, read: Sequence[int], written: Sequence[Sequence[int]], source: Specials, target: Specials
) -> list[float]:
    """Return the coverage (at most 0) of each hypothesis of one source.

    Finished hypotheses are replayed once, with hooks on `model`: the search itself needs no attention weights.
    """
    return [uncovered(weights) for weights in cross_attention(model, [read] * len(written), written, source, target)]


def uncovered(weight_TS: AttentionWeights) -> float:
    """Σ log min(Σ weight, 1) over the source tokens: 0 where each was attended to as much as one token can be."""
    total_S = weight_TS.sum(axis=0, dtype=np.float64)
    return float(np.log(total_S.clip(MIN_ATTENTION, 1.0)).sum())
