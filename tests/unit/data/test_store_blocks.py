from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from transduce.data import ragged
from transduce.data.batching import collate
from transduce.data.order import BatchSampler, Position
from transduce.data.ragged import open_array
from transduce.data.store import Blocks, BlockStore
from transduce.text.tokenizer.special import Specials

SIZES = (101, 7, 64)
"""Tokens of three corpora; every token is another one, so that it says where it stands."""
STREAM = np.arange(1000, 1000 + sum(SIZES), dtype=np.uint16)
SPECIALS = Specials(pad=0, start=1, end=2)


def store(block: int = 13, beyond: int = 1) -> BlockStore:
    return BlockStore(Blocks(STREAM, SIZES, block, beyond), [1.0] * len(SIZES))


def asked_for(blocks: Blocks) -> list[tuple[int, int]]:
    """Every (token before, token asked for) of all blocks."""
    rows = blocks.rows_of(np.arange(len(blocks)))
    return [pair for row in rows for pair in zip(row.tolist()[:-1], row.tolist()[1:], strict=True)]


@pytest.mark.parametrize("epoch", range(4))
def test_every_token_is_a_target_once_in_an_epoch_after_the_one_before_it(epoch: int) -> None:
    found = asked_for(store().of_epoch(seed=1, epoch=epoch).blocks)
    assert Counter(token for _, token in found) == Counter(STREAM.tolist())
    first = 1000
    for size in SIZES:  # each corpus is a ring
        expected = {first + (at + 1) % size: first + at for at in range(size)}
        assert all(before == expected[token] for before, token in found if token in expected)
        first += size


def test_epochs_cut_the_text_at_other_places_and_the_same_epoch_at_the_same() -> None:
    def begins(epoch: int, seed: int = 1) -> tuple[int, ...]:
        blocks = store().of_epoch(seed, epoch).blocks
        return tuple(int(row[0]) for row in blocks.rows_of(np.arange(len(blocks))))

    assert begins(0)[0] == 1000
    assert len({begins(epoch) for epoch in range(9)}) == 9
    assert begins(3) == begins(3) != begins(3, seed=2)


def test_blocks_of_a_large_file_are_read_and_not_mapped_and_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ragged, "MAPPED_BYTES", 10)
    (tmp_path / "tokens.bin").write_bytes(STREAM.tobytes())
    large = Blocks(open_array(tmp_path / "tokens.bin", np.dtype("<u2")), SIZES, 13, 1).shifted(1, 3)
    small = store().of_epoch(1, 3).blocks
    rows = np.array([11, 0, 7, 8, 2])
    assert [row.tolist() for row in large.rows_of(rows)] == [row.tolist() for row in small.rows_of(rows)]


def test_a_batch_of_blocks_has_no_start_or_end_put_around_it() -> None:
    text = store()
    rows = np.array([0, 7])  # a whole block, and the last of the first corpus, of 101 - 7 × 13 = 10 tokens
    batch = collate(text, rows, SPECIALS, SPECIALS)
    assert batch.target.shape == (2, 14)
    assert batch.target[0].tolist() == [*range(1000, 1014)]
    assert batch.target[1].tolist() == [*range(1091, 1101), 1000, 0, 0, 0]  # the ring closes, then padding
    assert batch.num_target_tokens == 13 + 10 == int((batch.target[:, 1:] != 0).sum())
    assert text.target_lengths[:].sum() + len(text) == len(STREAM)


def test_a_budget_of_tokens_holds_so_many_blocks() -> None:
    even = BlockStore(Blocks(np.zeros(64 * 60, dtype=np.uint16), [64 * 60], 64, 1), [1.0])
    assert {len(rows) for rows in BatchSampler.of(even, 768, seed=1).epoch(0)} == {12}


def test_the_order_is_a_function_of_seed_and_epoch_from_any_position_on() -> None:
    batches = BatchSampler.of(store(), 40, seed=3)
    walk = [(position, rows.tolist()) for (position, rows), _ in zip(batches.starting(), range(30), strict=False)]
    position, _ = walk[10]
    again = BatchSampler.of(store(), 40, seed=3).starting(Position(*position))
    assert [rows.tolist() for (_, rows), _ in zip(again, range(19), strict=False)] == [rows for _, rows in walk[11:]]


def test_corpora_are_mixed_by_their_weights() -> None:
    text = BlockStore(Blocks(STREAM, SIZES, 13, 1), [1.0, 3.0, 0.5])
    seen = Counter(int(row) for rows in BatchSampler.of(text, 40, seed=1).epoch(0) for row in rows)
    counts = text.blocks.counts
    assert counts == [8, 1, 5]
    assert [seen[row] for row in range(8)] == [1] * 8
    assert seen[8] == 3
    assert sorted(seen[row] for row in range(9, 14)) == [0, 0, 0, 1, 1]
