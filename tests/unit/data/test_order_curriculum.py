"""Short rows first: how long, when, and that a run can be taken up anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from transduce.data.order import BatchSampler, Curriculum, Position
from transduce.data.store import CorpusRows

LENGTHS = np.array([2, 9, 4, 7, 3, 12, 5], dtype=np.int64)


def test_the_limit_grows_evenly_to_the_longest_row_and_stays() -> None:
    curriculum = Curriculum(LENGTHS // 2, LENGTHS, 5)
    assert [curriculum.limit(epoch) for epoch in range(7)] == [4, 6, 8, 10, 12, 12, 12]


def test_rows_that_are_short_enough_stay_in_their_order() -> None:
    rows = np.array([5, 4, 3, 2, 1, 0])
    assert Curriculum(LENGTHS // 2, LENGTHS, 5).seen(rows, 0).tolist() == [4, 2, 0]
    assert Curriculum(LENGTHS // 2, LENGTHS, 5).seen(rows, 4).tolist() == rows.tolist()


def test_the_bounds_do_not_depend_on_how_many_rows_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for chunk in (1, 3, 7, 100):
        monkeypatch.setattr("transduce.data.order.CHUNK", chunk)
        curriculum = Curriculum(LENGTHS, LENGTHS[::-1].copy(), 1)
        assert (curriculum.shortest, curriculum.longest) == (4, 12)


def seen(batches: BatchSampler, epoch: int) -> list[int]:
    return sorted(int(row) for batch in batches.epoch(epoch) for row in batch)


@pytest.mark.parametrize("bucket_size", [2, 100])
def test_an_epoch_has_the_rows_whose_longer_side_is_within_its_limit(bucket_size: int) -> None:
    """With pools of two rows some have nothing to give at first."""
    batches = BatchSampler(np.ones_like(LENGTHS), LENGTHS, tokens=13, seed=1, bucket_size=bucket_size, curriculum=2)
    assert seen(batches, 0) == [0, 2, 3, 4, 6]
    assert seen(batches, 1) == seen(batches, 2) == list(range(7))
    assert batches.batches_in_epoch(0) >= 1


def test_an_epoch_that_nothing_is_left_of_counts_as_one_batch() -> None:
    """Weights below 1 choose other rows in every epoch, and those may all be too long yet."""
    lengths = np.array([1, 50, 50, 50])
    batches = BatchSampler(lengths, lengths, tokens=100, seed=1, corpora=[CorpusRows(4, 0.25)], curriculum=50)
    counts = [len(seen(batches, epoch)) for epoch in range(4)]
    assert sorted(counts) == [0, 0, 0, 1]
    assert all(batches.batches_in_epoch(epoch) == 1 for epoch in range(4))


def test_a_run_goes_on_from_any_position() -> None:
    batches = BatchSampler(LENGTHS, LENGTHS, tokens=13, seed=3, bucket_size=2, curriculum=3)
    stream = batches.starting()
    whole = [next(stream) for _ in range(20)]
    for place, (position, _) in enumerate(whole[:10]):
        again = batches.starting(Position(*position))
        for expected in whole[place + 1 :]:
            found = next(again)
            assert found[0] == expected[0] and found[1].tolist() == expected[1].tolist()
