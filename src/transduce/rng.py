"""A shuffled order that is computed, not stored: any part of it, at any time, in constant memory.

An order over millions of rows as an array costs memory and must be drawn from its beginning. A keyed bijection
(a Feistel network; Luby and Rackoff 1988) gives the row at any place of the order directly, so a run can start
anywhere and every rank agrees. Sizes that are no power of two are reached by cycle walking (Black and Rogaway
2002): a value outside the range is permuted again until it falls inside.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

# Scattering numbers: near ones become far ones, by a step of SplitMix64 (Steele, Lea and Flood 2014).
#
# What is drawn here (orders, dropout, samples, segmentations) is a function of keys, never of a stream; these make
# them.

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


# Chance that is a function of a seed, on every machine and with every version of Python.

T = TypeVar("T")


class Draw:
    """Whole numbers from `random.random()`, the one method whose sequence Python promises never to change."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        """One of 0 … count - 1."""
        return int(self._random.random() * count)

    def between(self, low: int, high: int) -> int:
        """One of low … high."""
        return low + self.below(high - low + 1)

    def symbols(self, length: int, count: int) -> list[int]:
        """So many numbers below a count."""
        return [self.below(count) for _ in range(length)]

    def one_of(self, things: Sequence[T]) -> T:
        """Any of some things."""
        return things[self.below(len(things))]


ROUNDS = 8
"""More than the four that theory asks for: the halves of small domains are only a few bits wide."""

Rows = NDArray[np.int64]
"""Row numbers."""


def round_keys(*key: int | str) -> NDArray[np.uint64]:
    """Derive the keys of one order from what names it, for example (seed, epoch); the same on every machine."""
    name = "\0".join(str(part) for part in key).encode()
    digest = hashlib.blake2b(name, digest_size=8 * ROUNDS, person=b"transduce order").digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def permute(places: Rows, size: int, keys: NDArray[np.uint64]) -> Rows:
    """Return the rows that stand at these places of the keyed order of `size` rows; a bijection of 0..size-1."""
    assert places.size == 0 or (places.min() >= 0 and places.max() < size)
    values = places.astype(np.uint64)
    outside = np.ones(values.shape, dtype=np.bool_)
    while outside.any():  # the domain is less than twice the size: half of the values settle in each turn
        values[outside] = _feistel(values[outside], size, keys)
        outside = values >= np.uint64(size)
    return values.astype(np.int64)


def _feistel(values: NDArray[np.uint64], size: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = max(2, (size - 1).bit_length())
    low_bits = bits // 2
    low_mask = np.uint64((1 << low_bits) - 1)
    high_mask = np.uint64((1 << (bits - low_bits)) - 1)
    low, high = values & low_mask, values >> np.uint64(low_bits)
    for turn, key in enumerate(keys):
        if turn % 2 == 0:
            high = high ^ (finalised(low + key) & high_mask)
        else:
            low = low ^ (finalised(high + key) & low_mask)
    return (high << np.uint64(low_bits)) | low
