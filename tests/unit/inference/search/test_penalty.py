"""Length penalties by hand."""

from __future__ import annotations

import math

import pytest

from transduce.inference.search.penalty import LENGTH_PENALTIES, gnmt, power


@pytest.mark.parametrize(
    ("length", "alpha", "expected"),
    [(1, 0.6, 1.0), (7, 1.0, 2.0), (19, 0.5, 2.0), (13, 2.0, 9.0), (0, 1.0, 5 / 6), (11, 0.0, 1.0)],
)
def test_gnmt_is_five_plus_n_sixths_to_the_alpha(length: int, alpha: float, expected: float) -> None:
    assert gnmt(length, alpha) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("length", "alpha", "expected"), [(7, 1.0, 7.0), (9, 0.5, 3.0), (3, 2.0, 9.0), (5, 0.0, 1.0), (1, 0.6, 1.0)]
)
def test_power_is_n_to_the_alpha(length: int, alpha: float, expected: float) -> None:
    assert power(length, alpha) == pytest.approx(expected, rel=1e-15)


def test_nothing_at_all_counts_as_one_token_for_power() -> None:
    assert power(0, 0.6) == 1.0


@pytest.mark.parametrize("name", LENGTH_PENALTIES)
def test_a_penalty_of_a_longer_hypothesis_is_larger_and_alpha_strengthens_it(name: str) -> None:
    penalty = LENGTH_PENALTIES[name]
    values = [penalty(length, 0.6) for length in range(1, 50)]
    assert values == sorted(set(values))
    assert penalty(23, 1.1) > penalty(23, 0.6) > 1.0


def test_the_penalty_of_the_paper_divides_a_score() -> None:
    """Section 6.1 with α = 0.6: 25 tokens at -10 beat 7 tokens at -5.8, which would win without."""
    assert -10 / gnmt(25, 0.6) > -5.8 / gnmt(7, 0.6)
    assert gnmt(25, 0.6) == pytest.approx(math.exp(0.6 * math.log(5)))
