"""Keyed randomness: published algorithms, orders that are bijections, and one place where generators are made."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce import rng
from transduce.rng import GAMMA, MASK, permute, round_keys, splitmix64, splitmix64_array

PUBLISHED = [6457827717110365317, 3203168211198807973, 9817491932198370423]
"""The first numbers of SplitMix64 from 1234567 on (Rosetta Code)."""


def test_splitmix64_gives_the_published_numbers() -> None:
    states = [1234567 + step * GAMMA & MASK for step in range(3)]
    assert [splitmix64(state) for state in states] == PUBLISHED
    array = np.array(states, dtype=np.uint64)
    assert splitmix64_array(array).tolist() == PUBLISHED


@given(words=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
def test_mixing_numbers_and_arrays_is_the_same(words: list[int]) -> None:
    arrays = [np.array([word], dtype=np.uint64) for word in words]
    assert rng.mix_arrays(*arrays).tolist() == [rng.mix(*words)]
    assert rng.mix(1234567 - 2**64) == rng.mix(1234567) == PUBLISHED[0]  # numbers are taken modulo 2^64


def test_a_key_has_two_unrelated_halves_and_depends_on_every_number() -> None:
    keys = [rng.key(*words) for words in ((1, 2, 3), (1, 2, 4), (2, 1, 3), (1, 2), ())]
    assert len({half for one in keys for half in (one >> 64, one & MASK)}) == 10


def test_generators_of_one_key_draw_the_same_and_of_others_do_not() -> None:
    def draws(make: object, *keys: tuple[int | str, ...]) -> list[bytes]:
        return [make(*one).bytes(16) for one in keys]  # type: ignore[operator]

    for make, first, second in (
        (rng.generator, ("spans", 1, 2, 3), ("spans", 1, 2, 4)),
        (rng.generator, ("spans", 1, 2, 3), ("other", 1, 2, 3)),
        (rng.row_generator, (1, 2, 3), (1, 3, 2)),
        (rng.numpy_generator, (1,), (2,)),
    ):
        one, again, other = draws(make, first, first, second)
        assert one == again != other
    before = torch.random.get_rng_state()
    assert torch.equal(*(torch.rand(3, generator=rng.torch_generator(5)) for _ in range(2)))
    assert torch.equal(before, torch.random.get_rng_state())


def test_philox_gives_the_bits_of_any_place() -> None:
    whole = rng.philox(7).random_raw(40)
    assert np.array_equal(rng.philox(7, counter=5).random_raw(20), whole[20:])  # four numbers a step


def test_generators_are_made_nowhere_else() -> None:
    made = re.compile(r"torch\.Generator\(|manual_seed\(|np\.random\.[A-Za-z]+\(|random\.Random\(|\brandom\.seed\(")
    package = Path(rng.__file__).parent
    found = {
        f"{path.relative_to(package).as_posix()}: {match[0]}"
        for path in package.rglob("*.py")
        if path != Path(rng.__file__)
        for match in made.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == {"training/step.py: manual_seed("}  # of torch's own stream, for dropout on a GPU


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
