"""Numbers are scattered as the published generator scatters them."""

from __future__ import annotations

import numpy as np

from transduce.rng import GAMMA, MASK, finalised, scattered, scattered_all

PUBLISHED = [6457827717110365317, 3203168211198807973, 9817491932198370423]
"""The first numbers of SplitMix64 from 1234567 on (Rosetta Code)."""


def test_numbers_are_scattered_as_splitmix64_does() -> None:
    states = [1234567 + step * GAMMA & MASK for step in range(3)]
    assert [scattered(state) for state in states] == PUBLISHED
    array = np.array(states, dtype=np.uint64)
    assert scattered_all(array).tolist() == PUBLISHED
    assert finalised(array + np.uint64(GAMMA)).tolist() == PUBLISHED
