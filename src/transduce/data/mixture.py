"""Several corpora as one epoch: each pair as often as its corpus's weight says, computed and not stored.

An epoch is a range of places. The places of one corpus stand together: its rows as often as the whole part of its
weight says, then a choice of them for the fraction. The choice goes round a keyed order of the rows, further in each
epoch, so that no pair comes twice by it in an epoch and over many epochs all come equally often. The order of an epoch
is a permutation of its places (`batches`), so a row is a function of (seed, epoch, place).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transduce.rng import Rows, permute, round_keys


class Part(NamedTuple):
    """Consecutive rows of a split that come from one corpus."""

    size: int
    weight: float = 1.0
    """How often each row is seen in an epoch."""


class Mixture:
    """Which row stands at which place of an epoch."""

    def __init__(self, parts: Sequence[Part], seed: int) -> None:
        self._parts = [part for part in parts if part.size]
        self._keys = [round_keys(seed, "corpus", number) for number, part in enumerate(parts) if part.size]
        self._fractions = [_fraction(part) for part in self._parts]
        seen = [part.size * int(part.weight) + some for part, some in zip(self._parts, self._fractions, strict=True)]
        self._ends = np.cumsum(seen, dtype=np.int64)
        self._first_rows = np.cumsum([0, *(part.size for part in self._parts)], dtype=np.int64)
        self.size = int(self._ends[-1]) if seen else 0
        """Places of an epoch."""

    def rows(self, places: Rows, epoch: int) -> Rows:
        """Return the rows that stand at these places."""
        if len(self._parts) == 1 and self._parts[0].weight == 1:
            return places
        corpus = np.searchsorted(self._ends, places, side="right")
        rows = np.empty_like(places)
        for number, (part, keys, fraction) in enumerate(zip(self._parts, self._keys, self._fractions, strict=True)):
            mine = np.flatnonzero(corpus == number)
            place = places[mine] - (self._ends[number - 1] if number else 0)
            beyond = place - part.size * int(part.weight)
            chosen = np.flatnonzero(beyond >= 0)
            place %= part.size
            place[chosen] = permute((epoch * fraction + beyond[chosen]) % part.size, part.size, keys)
            rows[mine] = self._first_rows[number] + place
        return rows


def _fraction(part: Part) -> int:
    """How many rows the fraction of a weight chooses; a corpus of which nothing would be seen gives one."""
    fraction = round(part.size * math.fmod(part.weight, 1.0))
    return max(fraction, 1) if part.weight < 1 else fraction
