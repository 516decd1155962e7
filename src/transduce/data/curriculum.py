"""Short pairs first: how long a pair may be, epoch by epoch (Kaiser & Sutskever 2016, section 3; Bengio et al. 2009).

What has been seen is a function of the epoch alone, so that a run can stop and go on anywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transduce.data.permutation import Rows


class Curriculum:
    """The longest pair that may be seen grows evenly, from near the shortest to the longest one."""

    def __init__(self, lengths: NDArray[np.int64], epochs: int) -> None:
        """`lengths` are of each row's longer side; from the `epochs`-th epoch on all are seen."""
        assert epochs >= 1 and len(lengths)
        self.lengths, self.epochs = lengths, epochs
        self.shortest, self.longest = int(lengths.min()), int(lengths.max())

    def limit(self, epoch: int) -> int:
        """Return the longest length of an epoch, counted from 0."""
        reached = min(epoch + 1, self.epochs)
        return self.shortest + (self.longest - self.shortest) * reached // self.epochs

    def seen(self, rows: Rows, epoch: int) -> Rows:
        """Return the rows that are short enough, in their order."""
        return rows[self.lengths[rows] <= self.limit(epoch)]
