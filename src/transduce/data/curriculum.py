"""Short pairs first: how long a pair may be, epoch by epoch (Kaiser & Sutskever 2016, section 3; Bengio et al. 2009).

What has been seen is a function of the epoch alone, so that a run can stop and go on anywhere.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from transduce.data.permutation import Rows

CHUNK = 2**20
"""Rows that are looked at together, so that memory does not grow with the corpus."""


class RowLengths(Protocol):
    """The lengths of one side of a corpus."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[np.int64]: ...


class Curriculum:
    """The longest pair that may be seen grows evenly, from near the shortest to the longest one."""

    def __init__(self, source_lengths: RowLengths, target_lengths: RowLengths, epochs: int) -> None:
        """A row is as long as its longer side; in the `epochs`-th epoch and from then on all are seen."""
        assert epochs >= 1 and len(target_lengths)
        self._sides, self.epochs = (source_lengths, target_lengths), epochs
        count = len(target_lengths)
        bounds = []
        for start in range(0, count, CHUNK):
            lengths = self.length(np.arange(start, min(start + CHUNK, count)))
            bounds += [int(lengths.min()), int(lengths.max())]
        self.shortest, self.longest = min(bounds), max(bounds)

    def length(self, rows: Rows) -> NDArray[np.int64]:
        """Return how long each row is."""
        source, target = self._sides
        return np.maximum(source[rows], target[rows])

    def limit(self, epoch: int) -> int:
        """Return the longest length of an epoch, counted from 0."""
        reached = min(epoch + 1, self.epochs)
        return self.shortest + (self.longest - self.shortest) * reached // self.epochs

    def seen(self, rows: Rows, epoch: int) -> Rows:
        """Return the rows that are short enough, in their order."""
        return rows[self.length(rows) <= self.limit(epoch)]
