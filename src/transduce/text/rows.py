"""Rows of unequal length that stand in one array, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def take_rows(
    values: NDArray[Any], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the rows `values[start:end]` in one array, and their lengths; no loop over rows."""
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    return values[np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)], lengths
