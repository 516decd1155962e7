from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.batching import collate, cut_by_budget, validation_batches
from transduce.data.order import BatchSampler, Position
from transduce.data.store import PairStore
from transduce.errors import DataError, SettingsError
from transduce.text.tokenizer.special import Specials

LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=300)


def batches_of(lengths: list[tuple[int, int]], tokens: int, seed: int = 5, bucket_size: int = 37) -> BatchSampler:
    source, target = np.array(lengths, dtype=np.int64).T
    return BatchSampler(source, target, tokens, seed, bucket_size)


@given(lengths=LENGTHS, tokens=st.integers(1, 200), epoch=st.integers(0, 5))
@settings(max_examples=60)
def test_every_row_comes_exactly_once_per_epoch(lengths: list[tuple[int, int]], tokens: int, epoch: int) -> None:
    rows = np.concatenate(list(batches_of(lengths, tokens).epoch(epoch)))
    assert np.array_equal(np.sort(rows), np.arange(len(lengths)))


@given(lengths=LENGTHS, tokens=st.integers(1, 200))
@settings(max_examples=60)
def test_a_batch_keeps_the_budget_or_is_one_row(lengths: list[tuple[int, int]], tokens: int) -> None:
    for rows in batches_of(lengths, tokens).epoch(0):
        longest = max(max(lengths[row]) + 1 for row in rows)
        assert len(rows) == 1 or len(rows) * longest <= tokens


@given(lengths=LENGTHS, tokens=st.integers(20, 200), skip=st.integers(0, 60))
@settings(max_examples=60)
def test_starting_midway_gives_what_would_have_followed(lengths: list[tuple[int, int]], tokens: int, skip: int) -> None:
    straight = list(itertools.islice(batches_of(lengths, tokens).starting(), skip + 11))
    position = straight[skip - 1][0] if skip else Position()
    position = Position(*json.loads(json.dumps(position)))
    resumed = list(itertools.islice(batches_of(lengths, tokens).starting(position), 11))
    for (place, rows), (expected_place, expected) in zip(resumed, straight[skip:], strict=True):
        assert place == expected_place
        assert np.array_equal(rows, expected)


def test_the_stream_is_its_epochs_one_after_the_other() -> None:
    lengths = [(row % 13, row % 7) for row in range(101)]
    batches = batches_of(lengths, 50)
    expected = [*batches.epoch(0), *batches.epoch(1)]
    stream = list(itertools.islice(batches.starting(), len(expected)))
    assert all(np.array_equal(rows, other) for (_, rows), other in zip(stream, expected, strict=True))
    assert stream[batches.batches_in_epoch(0) - 1][0] == Position(1, 0, 0)
    assert stream[-1][0] == Position(2, 0, 0)


def test_order_depends_on_seed_and_epoch_alone() -> None:
    lengths = [(row % 13, row % 7) for row in range(997)]
    first = [rows.tolist() for rows in batches_of(lengths, 60).epoch(0)]
    assert [rows.tolist() for rows in batches_of(lengths, 60).epoch(0)] == first
    assert [rows.tolist() for rows in batches_of(lengths, 60).epoch(1)] != first
    assert [rows.tolist() for rows in batches_of(lengths, 60, seed=6).epoch(0)] != first


def test_batches_come_in_no_order_of_length() -> None:
    lengths = [(row % 61, row % 61) for row in range(5000)]
    longest = [max(lengths[row][1] for row in rows) for rows in batches_of(lengths, 300, bucket_size=5000).epoch(0)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.15


def realistic_lengths(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentences of 22 tokens in the middle, sources about as long as targets, give or take a fifth."""
    random = np.random.default_rng(3)
    target = np.clip(np.exp(random.normal(3.1, 0.55, size)).astype(np.int64), 1, 250)
    source = np.clip((target * np.exp(random.normal(0, 0.2, size))).astype(np.int64), 1, 250)
    return source, target


def test_less_than_five_percent_is_padding_at_4096_tokens() -> None:
    source, target = realistic_lengths(131_072)
    places = real = 0
    for rows in BatchSampler(source, target, 4096, seed=1).epoch(0):
        for lengths in (source, target):
            places += len(rows) * int(lengths[rows].max() + 1)
            real += int((lengths[rows] + 1).sum())
    assert 1 - real / places < 0.05


def test_pools_are_of_equal_size_so_that_none_is_mostly_padding() -> None:
    batches = batches_of([(3, 3)] * 1009, tokens=4000, bucket_size=1000)
    sizes = [sum(map(len, batches.bucket(0, pool))) for pool in range(batches.num_buckets)]
    assert sizes == [505, 504]


def test_a_sentence_above_the_budget_is_a_batch_of_its_own() -> None:
    rows = cut_by_budget(np.arange(3), np.array([2, 90, 2]), np.array([3, 3, 3]), tokens=20)
    assert sorted(batch.tolist() for batch in rows) == [[0, 2], [1]]


def test_a_batch_has_no_more_rows_than_it_may() -> None:
    source, target = realistic_lengths(1000)
    batches = BatchSampler(source, target, 100_000, seed=1, max_rows=128)
    sizes = [len(rows) for rows in batches.epoch(0)]
    assert sorted(sizes) == [1000 % 128, *[128] * 7]
    both = BatchSampler(source, target, 500, seed=1, max_rows=5)
    assert max(len(rows) for rows in both.epoch(0)) == 5
    assert all(len(rows) * (max(source[rows].max(), target[rows].max()) + 1) <= 500 for rows in both.epoch(0))
    made = PairStore.of([[1] * 3] * 12, [[1] * 3] * 12)
    assert [len(rows) for rows in both.cut(made)] == [5, 5, 2]


def test_an_empty_corpus_and_an_impossible_budget_are_rejected() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    with pytest.raises(DataError, match="without pairs"):
        BatchSampler(nothing, nothing, 10, 1)
    with pytest.raises(SettingsError, match="at least one token"):
        batches_of([(1, 1)], tokens=0)


def test_validation_batches_hold_every_row_once_and_always_the_same() -> None:
    store = PairStore.of([[1] * (row % 11) for row in range(103)], [[2] * (row % 5) for row in range(103)])
    batches = validation_batches(store, 40)
    assert sorted(np.concatenate(batches).tolist()) == list(range(103))
    assert [rows.tolist() for rows in batches] == [rows.tolist() for rows in validation_batches(store, 40)]


def test_collate_frames_and_pads_by_hand() -> None:
    store = PairStore.of([[11, 12, 13], [], [14]], [[], [21, 22], [23]])
    batch = collate(store, np.array([2, 0, 1]), Specials(pad=7, start=8, end=9), Specials(pad=4, start=5, end=6))
    assert batch.source.tolist() == [[14, 9, 7, 7], [11, 12, 13, 9], [9, 7, 7, 7]]
    assert batch.source_allowed.tolist() == [
        [True, True, False, False],
        [True, True, True, True],
        [True, False, False, False],
    ]
    assert batch.target.tolist() == [[5, 23, 6, 4], [5, 6, 4, 4], [5, 21, 22, 6]]
    assert batch.num_target_tokens == 2 + 1 + 3
    assert batch.rows.tolist() == [2, 0, 1]
    assert batch.source.dtype == batch.target.dtype == torch.int64


def test_collate_of_empty_sides_and_of_no_rows() -> None:
    store = PairStore.of([[], []], [[], []])
    specials = Specials(0, 1, 2)
    batch = collate(store, np.array([0, 1]), specials, specials)
    assert batch.source.tolist() == [[2], [2]]
    assert batch.target.tolist() == [[1, 2], [1, 2]]
    empty = collate(store, np.zeros(0, dtype=np.int64), specials, specials)
    assert empty.source.shape == (0, 1) and empty.target.shape == (0, 2) and empty.num_target_tokens == 0


TOKENS = st.lists(st.integers(3, 99), max_size=9)


@given(pairs=st.lists(st.tuples(TOKENS, TOKENS), min_size=1))
def test_collate_loses_nothing(pairs: list[tuple[list[int], list[int]]]) -> None:
    store = PairStore.of([source for source, _ in pairs], [target for _, target in pairs])
    batch = collate(store, np.arange(len(pairs)), Specials(0, 1, 2), Specials(0, 1, 2))
    for row, (source, target) in enumerate(pairs):
        assert batch.source[row][batch.source_allowed[row]].tolist() == [*source, 2]
        assert [token for token in batch.target[row].tolist() if token] == [1, *target, 2]
