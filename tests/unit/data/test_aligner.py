"""The aligner against loops written out, and on a language whose word order is known."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from transduce.data import aligner, lexicon
from transduce.data.aligner import Aligner, align_corpus
from transduce.data.lexicon import PairSample
from transduce.data.ragged import Ragged

SOURCES, TARGETS = 11, 13
Tokens = list[list[int]]


def corpus(count: int = 23) -> tuple[Tokens, Tokens]:
    draw = random.Random(3)
    sources = [[draw.randrange(SOURCES) for _ in range(draw.randint(1, 5))] for _ in range(count)]
    return sources, [[*row, draw.randrange(TARGETS)] for row in sources]


def by_hand(
    sources: Tokens, targets: Tokens, rounds: int, slope: float = 1e-6
) -> tuple[dict[tuple[int, int], float], float]:
    """fast_align's model in plain loops; the tension by derivatives of the likelihood that are taken numerically."""
    null, chance = SOURCES, dict[tuple[int, int], float]()
    tension = 4.0
    for _ in range(rounds):
        count, posteriors = dict[tuple[int, int], float](), []
        for source, target in zip(sources, targets, strict=True):
            for i, token in enumerate(target, start=1):
                words = [null, *source]
                prior = priors(i, len(target), len(source), tension)
                weights = [chance.get((word, token), 1.0) * share for word, share in zip(words, prior, strict=True)]
                shares = [weight / sum(weights) for weight in weights]
                posteriors.append((i, len(target), len(source), shares))
                for word, share in zip(words, shares, strict=True):
                    count[word, token] = count.get((word, token), 0.0) + share

        def likelihood(tension: float, posteriors: list[tuple[int, int, int, list[float]]] = posteriors) -> float:
            return sum(
                share * math.log(prior)
                for i, m, n, shares in posteriors
                for share, prior in zip(shares, priors(i, m, n, tension), strict=True)
            )

        step = 1e-3
        low, middle, high = (likelihood(tension + change) for change in (-step, 0.0, step))
        tension += (high - low) / (2 * step) / -((high - 2 * middle + low) / step**2)
        tension = min(max(tension, 0.1), 14.0)
        size = {word: sum(1 for one, _ in count if one == word) for word, _ in count}
        total = {word: sum(value for (one, _), value in count.items() if one == word) for word in size}
        chance = {
            (word, token): math.exp(digamma(value + 0.01) - digamma(total[word] + 0.01 * size[word]))
            for (word, token), value in count.items()
        }
    return chance, tension


def priors(i: int, m: int, n: int, tension: float) -> list[float]:
    near = [math.exp(-tension * abs(i / m - j / n)) for j in range(1, n + 1)]
    return [0.08, *(0.92 * value / sum(near) for value in near)]


def digamma(value: float) -> float:
    step = 1e-5 * value
    return (math.lgamma(value + step) - math.lgamma(value - step)) / (2 * step)


@pytest.mark.parametrize("rounds", [1, 2])
def test_probabilities_are_those_of_fast_align(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    monkeypatch.setattr(aligner, "ROUNDS", rounds)
    pairs = corpus()
    sides = Ragged.of(pairs[0]), Ragged.of(pairs[1])
    found = Aligner.learn(sides, (SOURCES, TARGETS), PairSample.of(*sides), lambda done: None)
    chance, tension = by_hand(*pairs, rounds)
    assert found.tension == pytest.approx(tension, rel=1e-3)
    keys = [word * TARGETS + token for word, token in chance]
    assert sorted(keys) == found.table.keys.tolist()
    values = dict(zip(found.table.keys.tolist(), found.table.values.tolist(), strict=True))
    assert [values[key] for key in keys] == pytest.approx([*chance.values()], rel=2e-3, abs=1e-12)


def links_of(sources: Tokens, targets: Tokens, rows: list[int], size: int) -> list[list[list[int]]]:
    """The links of some rows: [target, source]."""
    links, lengths = align_corpus((Ragged.of(sources), Ragged.of(targets)), (size, size))(
        np.array(rows, dtype=np.int64), (0, 0)
    )
    ends = np.cumsum([0, *lengths]) // 2
    return [links.reshape(-1, 2)[start:end].tolist() for start, end in pairwise(ends.tolist())]


@pytest.mark.parametrize("backwards", [False, True])
def test_words_are_aligned_in_either_order(backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    sources = [draw.sample(range(60), draw.randint(3, 8)) for _ in range(400)]
    targets = [[7 * token % 60 for token in (row[::-1] if backwards else row)] for row in sources]
    rows = [*range(3, 390, 2)]
    lengths = [len(sources[row]) for row in rows]
    expected = [[[place, size - 1 - place if backwards else place] for place in range(size)] for size in lengths]
    found = links_of(sources, targets, rows, 60)
    right = sum(link in truth for one, truth in zip(found, expected, strict=True) for link in one)
    assert right == sum(map(len, found)) >= 0.98 * sum(map(len, expected))
    monkeypatch.setattr(lexicon, "CHUNK_CELLS", 200)
    assert links_of(sources, targets, rows, 60) == found  # in other chunks


def test_pairs_without_a_side_or_far_too_long_have_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "CHUNK_CELLS", 30)
    sources, targets = [[1, 2], [], [3], [4] * 9, [1]], [[1, 2], [3], [], [4] * 9, [1]]
    assert [len(one) for one in links_of(sources, targets, [0, 1, 2, 3, 4], 5)] == [2, 0, 0, 0, 1]


def test_first_tokens_may_be_left_out() -> None:
    sides = Ragged.of([[9, 1], [9, 2]] * 5), Ragged.of([[1], [2]] * 5)
    links, lengths = align_corpus(sides, (10, 10))(np.arange(2), (0, 1))
    assert (links.tolist(), lengths.tolist()) == ([0, 1, 0, 1], [2, 2])


def test_a_corpus_without_pairs_is_no_error() -> None:
    assert links_of([], [], [], 5) == []
    assert links_of([[], [1]], [[1], []], [0, 1], 5) == [[], []]
