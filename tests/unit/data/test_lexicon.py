"""IBM Model 1 against the paper's loops written out, and its chunks, samples and limits."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest

from transduce.data import lexicon
from transduce.data.lexicon import Lexicon, PairSample, learn_lexicon
from transduce.data.ragged import Ragged

SOURCES, TARGETS = 11, 13


def corpus(count: int = 37, seed: int = 1) -> tuple[list[list[int]], list[list[int]]]:
    """Pairs in which target token t mostly stands for source token t; with repeated tokens and empty sides."""
    draw = random.Random(seed)
    sources = [[draw.randrange(SOURCES) for _ in range(draw.randint(0, 7))] for _ in range(count)]
    targets = [[token if draw.random() < 0.8 else draw.randrange(TARGETS) for token in row] for row in sources]
    return [*sources, [3, 3, 5], []], [*targets, [], [12, 12]]


def by_hand(sources: list[list[int]], targets: list[list[int]], rounds: int) -> dict[tuple[int, int], float]:
    """Expected counts of the last round; None is NULL."""
    chance: dict[tuple[int | None, int], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        count: dict[tuple[int | None, int], float] = defaultdict(float)
        total: dict[int | None, float] = defaultdict(float)
        for source, target in zip(sources, targets, strict=True):
            for token in target:
                whole = sum(chance[one, token] for one in (None, *source))
                for one in (None, *source):
                    share = chance[one, token] / whole
                    count[one, token] += share
                    total[one] += share
        chance = defaultdict(float, {(one, token): count[one, token] / total[one] for one, token in count})
    return {(one, token): value for (one, token), value in count.items() if one is not None}


def learned(sources: list[list[int]], targets: list[list[int]], **options: object) -> Lexicon:
    return learn_lexicon(Ragged.of(sources), Ragged.of(targets), SOURCES, TARGETS, **options)  # type: ignore[arg-type]


def counts(found: Lexicon) -> dict[tuple[int, int], float]:
    return {
        (int(source), int(target)): float(count)
        for source, target, count in zip(found.sources, found.targets, found.counts, strict=True)
    }


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_counts_are_those_of_model_1(rounds: int) -> None:
    pairs = corpus()
    found, expected = counts(learned(*pairs, rounds=rounds)), by_hand(*pairs, rounds)
    assert found.keys() == expected.keys()
    assert all(found[pair] == pytest.approx(expected[pair], abs=1e-9) for pair in expected)


def test_the_likeliest_translation_is_the_true_one() -> None:
    found = counts(learned(*corpus(count=500)))
    for source in range(SOURCES):
        assert max(range(TARGETS), key=lambda target, source=source: found.get((source, target), 0.0)) == source


@pytest.mark.parametrize(("cells", "rows"), [(72, 2**14), (72, 5), (2**20, 3)])
def test_chunks_do_not_matter(cells: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = learned(*corpus())
    monkeypatch.setattr(lexicon, "CHUNK_CELLS", cells)
    monkeypatch.setattr(lexicon, "CHUNK_ROWS", rows)
    parts = learned(*corpus())
    assert np.array_equal(parts.sources, whole.sources)
    assert np.array_equal(parts.targets, whole.targets)
    assert np.array_equal(parts.frequency, whole.frequency)
    assert np.allclose(parts.counts, whole.counts, rtol=0.0, atol=1e-9)


def test_target_tokens_are_counted() -> None:
    sources, targets = corpus()
    flat = [token for row in targets for token in row]
    assert learned(sources, targets).frequency.tolist() == [flat.count(token) for token in range(TARGETS)]


def test_of_a_large_corpus_some_pairs_are_taken_evenly_and_always_the_same() -> None:
    sources = Ragged.of([[1, 2]] * 1000)
    sample = PairSample.of(sources, sources, max_cells=600)
    assert sample == PairSample(taken=100, all=1000)
    assert sample.rows(0, 10**6).tolist() == list(range(0, 1000, 10))
    assert sample.rows(7, 9).tolist() == [70, 80]
    assert PairSample.of(sources, sources, max_cells=6000) == PairSample(1000, 1000)


def test_a_sample_is_learned_as_if_it_were_the_corpus() -> None:
    sources, targets = corpus(count=40)
    some = learned(sources, targets, sample=PairSample(14, 42))
    assert counts(some) == pytest.approx(counts(learned(sources[::3], targets[::3])), abs=1e-9)


def test_a_pair_too_long_to_be_held_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "CHUNK_CELLS", 80)
    sources, targets = corpus()
    long = learned([*sources, [1] * 9], [*targets, [2] * 9])
    assert long.sample.too_long == 1
    assert counts(long) == pytest.approx(counts(learned(sources, targets)), abs=1e-9)


def test_a_full_table_forgets_what_counts_least_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counts(learned(*corpus(count=500)))
    monkeypatch.setattr(lexicon, "MAX_ENTRIES", 60)
    monkeypatch.setattr(lexicon, "CHUNK_CELLS", 100)
    some = counts(learned(*corpus(count=500)))
    assert 0 < len(some) <= 60 < len(whole)
    assert all((token, token) in some for token in range(SOURCES))
