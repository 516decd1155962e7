"""Perplexity against arithmetic."""

from __future__ import annotations

import math

import pytest

from transduce.errors import DataError
from transduce.evaluation.metrics import finite, perplexity


def test_guessing_evenly_among_eleven_tokens_has_perplexity_eleven() -> None:
    assert perplexity(7 * math.log(11), 7) == pytest.approx(11)


def test_a_perfect_model_has_perplexity_one() -> None:
    assert perplexity(0.0, 5) == 1.0


def test_a_huge_loss_is_infinite_and_not_a_crash() -> None:
    assert perplexity(1e9, 2) == math.inf
    assert perplexity(math.inf, 2) == math.inf
    assert math.isnan(perplexity(math.nan, 2))


def test_json_has_no_infinity() -> None:
    assert (finite(2.5), finite(math.inf), finite(math.nan)) == (2.5, None, None)


@pytest.mark.parametrize("tokens", [0, -3])
def test_no_tokens_are_rejected(tokens: int) -> None:
    with pytest.raises(DataError, match="at least one token"):
        perplexity(1.0, tokens)
