"""The aligner against loops written out, and on a language whose word order is known."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from transduce.data import alignment, lexicon
from transduce.data.alignment import Aligner, align_corpus
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
    monkeypatch.setattr(alignment, "ROUNDS", rounds)
    pairs = corpus()
    sides = Ragged.of(pairs[0]), Ragged.of(pairs[1])
    found = Aligner.learn(sides, (SOURCES, TARGETS), PairSample.of(*sides), lambda done: None)
    chance, tension = by_hand(*pairs, rounds)
    assert found.tension == pytest.approx(tension, rel=1e-3)
    keys = [word * TARGETS + token for word, token in chance]
    assert sorted(keys) == found.table.keys.tolist()
    values = dict(zip(found.table.keys.tolist(), found.table.values.tolist(), strict=True))
    assert [values[key] for key in keys] == pytest.approx([*chance.values()], rel=2e-3, abs=1e-12)


@pytest.mark.parametrize("backwards", [False, True])
def test_words_are_aligned_in_either_order(backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    sources = [draw.sample(range(60), draw.randint(3, 8)) for _ in range(400)]
    targets = [[7 * token % 60 for token in (row[::-1] if backwards else row)] for row in sources]
    expected = [[[place, len(row) - 1 - place if backwards else place] for place in range(len(row))] for row in sources]
    rows = np.arange(len(sources))[::-1].copy()
    sides = Ragged.of(sources), Ragged.of(targets)
    found = align_corpus(sides, (60, 60))(rows)
    links = sum(map(len, expected))
    right = sum(
        len({*map(tuple, one.tolist())} & {*map(tuple, expected[row])}) for row, one in zip(rows, found, strict=True)
    )
    assert sum(map(len, found)) <= links and right >= 0.98 * links
    monkeypatch.setattr(lexicon, "CHUNK_CELLS", 200)
    again = align_corpus(sides, (60, 60))(rows)  # in other chunks
    assert [one.tolist() for one in again] == [one.tolist() for one in found]


def test_pairs_without_a_side_or_far_too_long_have_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "CHUNK_CELLS", 30)
    sources, targets = [[1, 2], [], [3], [4] * 9], [[1, 2], [3], [], [4] * 9]
    found = align_corpus((Ragged.of(sources), Ragged.of(targets)), (5, 5))(np.arange(4))
    assert [len(one) for one in found] == [2, 0, 0, 0]
