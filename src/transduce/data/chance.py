"""Chance that is a function of a seed, on every machine and with every version of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

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
