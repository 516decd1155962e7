from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transduce.rng import permute, round_keys


@given(size=st.integers(1, 3000), seed=st.integers(-(2**63), 2**63), epoch=st.integers(0, 10**6))
def test_a_keyed_order_is_a_bijection_of_its_rows(size: int, seed: int, epoch: int) -> None:
    rows = permute(np.arange(size), size, round_keys(seed, epoch))
    assert np.array_equal(np.sort(rows), np.arange(size))


@given(size=st.integers(1, 3000), data=st.data())
def test_any_part_of_an_order_can_be_computed_alone(size: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    keys = round_keys(7, 3)
    whole = permute(np.arange(size), size, keys)
    assert np.array_equal(permute(np.arange(start, stop), size, keys), whole[start:stop])


def test_large_sizes_stay_in_range_and_do_not_collide() -> None:
    size = 20_000_003
    rows = permute(np.arange(5_000_000, 5_100_000), size, round_keys(1, 0))
    assert rows.min() >= 0 and rows.max() < size
    assert len(np.unique(rows)) == 100_000


def test_orders_of_different_seeds_and_epochs_are_unrelated() -> None:
    size = 10_007
    orders = [permute(np.arange(size), size, round_keys(*key)) for key in ((1, 0), (1, 1), (2, 0), (10,), (1, 0, 0))]
    for index, one in enumerate(orders):
        for other in [np.arange(size), *orders[:index]]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
            assert np.count_nonzero(one == other) < 20  # about one is expected of two random orders


def test_every_place_of_a_small_order_is_equally_likely() -> None:
    size, trials = 5, 4000
    counts = np.zeros((size, size))
    for seed in range(trials):
        counts[np.arange(size), permute(np.arange(size), size, round_keys(seed))] += 1
    expected = trials / size
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 45  # 16 degrees of freedom: above 45 once in 10,000


def test_keys_separate_their_parts() -> None:
    assert not np.array_equal(round_keys(1, 23), round_keys(12, 3))
