"""Shortlists out of a lexicon, worked out by hand, and what they cover."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.copy_translator import tokenizer
from transduce.data.lexicon import Lexicon, PairSample, learn_lexicon
from transduce.data.ragged import Ragged
from transduce.tasks.translation.shortlist import build_shortlist, measure_coverage


def lexicon(rows: list[tuple[int, int, float]], size: int, frequent: dict[int, int]) -> Lexicon:
    sources, targets, counts = (np.array(column) for column in zip(*sorted(rows), strict=True))
    frequency = np.array([frequent.get(token, 0) for token in range(size)])
    return Lexicon(sources, targets, counts.astype(np.float64), size, size, frequency, PairSample(1, 1))


def test_the_likeliest_and_the_most_frequent_are_taken() -> None:
    known = tokenizer("word")
    assert known.unknown is not None
    framing = sorted([known.pad, known.start, known.end, known.unknown])
    rows = [(5, 9, 0.5), (5, 10, 2.0), (5, 11, 1.0), (6, 12, 0.1)]
    found = build_shortlist(lexicon(rows, known.size, {13: 5, 14: 9, 15: 7}), known, known, per_token=2, frequent=2)
    assert found.always.tolist() == [*framing, 14, 15]
    assert found.of([5]).tolist() == [*framing, 5, 10, 11, 14, 15]
    assert found.of([6, 5, 6]).tolist() == [*framing, 5, 6, 10, 11, 12, 14, 15]
    assert found.of([7]).tolist() == [*framing, 7, 14, 15]
    assert found.of([]).tolist() == found.always.tolist()


def test_with_two_tokenizers_no_token_is_its_own_translation() -> None:
    source, target = tokenizer("word"), tokenizer("byte")
    counted = Lexicon(
        np.array([5]),
        np.array([200]),
        np.array([1.0]),
        source.size,
        target.size,
        np.zeros(target.size, int),
        PairSample(1, 1),
    )
    found = build_shortlist(counted, source, target)
    assert found.of([5, 6]).tolist() == [*sorted(target.specials), 200]


def test_coverage_is_counted_in_tokens_and_in_whole_sentences() -> None:
    known = tokenizer("word")
    rows = [(5, 9, 1.0), (6, 10, 1.0)]
    found = build_shortlist(lexicon(rows, known.size, {}), known, known)
    sources, targets = Ragged.of([[5], [6], [5, 6]]), Ragged.of([[9, 5], [9, 10, 10], [10, 9]])
    measured = measure_coverage(found, sources, targets)
    assert (measured.token_share, measured.pair_share) == (pytest.approx(6 / 7), pytest.approx(2 / 3))
    assert measured.mean_candidates == pytest.approx((6 + 6 + 8) / 3)
    assert measure_coverage(found, sources, targets, most=1).pairs == 1


def test_a_corpus_is_covered_by_its_own_full_lists() -> None:
    known = tokenizer("bpe")
    texts = ["the quick fox", "ten small cats sleep", "one old tree"]
    rows = Ragged.of([known.encode(text) for text in texts])
    other = Ragged.of([known.encode(text.upper()) for text in texts])
    counted = learn_lexicon(rows, other, known.size, known.size)
    measured = measure_coverage(build_shortlist(counted, known, known, per_token=known.size, frequent=0), rows, other)
    assert measured.token_share == measured.pair_share == 1.0
