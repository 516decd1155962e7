"""Scattering numbers: near ones become far ones, by a step of SplitMix64 (Steele, Lea and Flood 2014).

What is drawn here (orders, dropout, samples, segmentations) is a function of keys, never of a stream; these make them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GAMMA = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def scattered(number: int) -> int:
    """The step of one number of 64 bits."""
    number = number + GAMMA & MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


def scattered_all(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The step of every number of an array."""
    return finalised(numbers + np.uint64(GAMMA))


def finalised(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The second part of the step, for numbers that are not counted up."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)
