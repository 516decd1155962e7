"""The coverage penalty (Wu et al. 2016, equation 14): an answer that left source tokens unread loses by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transduce.decoding.alignment import Weights, looked_at
from transduce.decoding.sentence import Sentence
from transduce.models.interface import AnyTransducer
from transduce.text.specials import Specials

LEAST = 1e-6
"""Attention that counts as none at all."""


def put_in_order(model: AnyTransducer, sentences: Sequence[Sentence], source: Specials, target: Specials) -> None:
    """Take the penalty off the scores of what has ended in sentences that ask for it.

    Answers are looked at once more when all of them are there: the search itself needs no attention weights.
    """
    for sentence in sentences:
        strength = sentence.options.coverage
        if strength:
            targets = [hypothesis.tokens for hypothesis in sentence.found]
            looked = iter(looked_at(model, [sentence.request.source] * len(targets), targets, source, target))
            sentence.finished = [
                [replace(found, score=found.score + strength * uncovered(next(looked))) for found in group]
                for group in sentence.finished
            ]


def uncovered(weight_TS: Weights) -> float:
    """Σ log min(Σ weight, 1) over the source tokens: 0 where each was looked at as much as one token can."""
    total_S = weight_TS.sum(axis=0, dtype=np.float64)
    return float(np.log(total_S.clip(LEAST, 1.0)).sum())
