"""The parts of the decision, by hand and by trying all paths."""

from __future__ import annotations

import itertools

import numpy as np

from transduce.data.cleaning.alignment_repair import _rising, _viterbi, _without_conflicts
from transduce.data.cleaning.words import words_of


def test_values_that_fall_are_pooled_by_weight() -> None:
    assert _rising(np.array([1.0, 3.0, 6.0, 4.0]), np.array([1.0, 1.0, 3.0, 1.0])).tolist() == [1.0, 2.25, 2.25, 4.0]
    assert _rising(np.array([3.0, 2.0, -2.0]), np.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_viterbi_finds_the_best_of_all_paths() -> None:
    random = np.random.default_rng(7)
    ratios, transitions = random.normal(size=(3, 5)), random.normal(size=(3, 3))

    def total(path: tuple[int, ...]) -> float:
        steps = [transitions[0, path[0]], *(transitions[one, other] for one, other in itertools.pairwise(path))]
        return float(sum(steps) + sum(ratios[state, at] for at, state in enumerate(path)))

    best = max(itertools.product(range(3), repeat=5), key=total)
    assert _viterbi(ratios, transitions) == list(best)


def test_a_target_goes_to_the_row_that_it_fits_best() -> None:
    shifts = [0, 1]
    ratios = np.array([[0.0, 5.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    rows = np.array([10, 11, 12])
    assert _without_conflicts([1, 0, 0], rows, ratios, shifts) == [None, 0, 0]
    assert _without_conflicts([0, 0, 1], rows, ratios, shifts) == [0, 0, None]  # of a row outside


def test_words_of_every_script_are_counted() -> None:
    assert words_of("Fotografin, 12 Äpfel") == ["fotog", "12", "äpfel"]
    assert words_of("今日は") == ["今", "日", "今日", "は"]
    assert words_of("हिन्दी में") == ["हिन्द", "में"]
    assert words_of("한국어") == ["한국"]
    assert words_of("والكتاب") == words_of("كتاب")
