"""Error rates against hand arithmetic, a brute-force edit distance, and laws."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.evaluation.metrics import EXACT_MATCH, PHONEME_ERROR_RATE, WORD_ERROR_RATE, References, edit_distance

symbols = st.lists(st.sampled_from("AEIK"), max_size=6)
lines = symbols.map(" ".join)


def exact_match(hypotheses: list[str], references: References) -> float:
    return EXACT_MATCH.score(hypotheses, references).value


def word_error_rate(hypotheses: list[str], references: References) -> float:
    return WORD_ERROR_RATE.score(hypotheses, references).value


def phoneme_error_rate(hypotheses: list[str], references: References) -> float:
    return PHONEME_ERROR_RATE.score(hypotheses, references).value


def recursive_distance(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Levenshtein's definition, word for word."""

    @cache
    def between(i: int, j: int) -> int:
        if min(i, j) == 0:
            return max(i, j)
        same = one[i - 1] == other[j - 1]
        return min(between(i - 1, j) + 1, between(i, j - 1) + 1, between(i - 1, j - 1) + (not same))

    return between(len(one), len(other))


@settings(max_examples=150, deadline=None)
@given(symbols, symbols)
def test_edit_distance_is_its_definition(one: list[str], other: list[str]) -> None:
    assert edit_distance(one, other) == recursive_distance(tuple(one), tuple(other))
    assert edit_distance(one, other) == edit_distance(other, one)


def test_edit_distance_of_known_words() -> None:
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == 3
    assert edit_distance("flaw", "lawn") == 2


def test_any_reference_counts_as_right() -> None:
    references = [["T AH M EY T OW", "T AH M AA T OW"], ["K AE T"], ["D AO G"]]
    guesses = ["T AH M AA T OW", "K AE T", "D AA G"]
    assert exact_match(guesses, references) == 2 / 3
    assert word_error_rate(guesses, references) == 1 / 3


def test_phoneme_error_rate_sums_edits_and_lengths_of_the_nearest_references() -> None:
    references = [["T AH M EY T OW", "T AH M AA"], ["K AE T"], ["D AO G Z"]]
    guesses = ["T AH M AA T OW", "K AE", "D AA G Z Z"]
    # 1 edit to the first (2 to the second): of 6; 1 deletion of 3; 1 substitution and 1 insertion of 4
    assert phoneme_error_rate(guesses, references) == (1 + 1 + 2) / (6 + 3 + 4)


def test_among_equally_near_references_the_longest_counts() -> None:
    assert phoneme_error_rate(["A B C"], [["A B", "A B C D"]]) == 1 / 4


@settings(max_examples=50, deadline=None)
@given(lines, st.lists(symbols.filter(bool).map(" ".join), min_size=1, max_size=3))
def test_the_order_of_references_does_not_matter(guess: str, references: list[str]) -> None:
    assert len({phoneme_error_rate([guess], [order]) for order in permutations(references)}) == 1


@settings(max_examples=50, deadline=None)
@given(lines, st.lists(symbols.filter(bool).map(" ".join), min_size=1, max_size=3))
def test_no_phoneme_errors_exactly_when_no_word_errors(guess: str, references: list[str]) -> None:
    assert (phoneme_error_rate([guess], [references]) == 0) == (word_error_rate([guess], [references]) == 0)


def test_spaces_between_symbols_do_not_make_a_word_wrong() -> None:
    assert word_error_rate([" K  AE T "], [["K AE T"]]) == 0
    assert exact_match([" K AE T\n"], [["K AE T"]]) == 1
    assert exact_match(["K  AE T"], [["K AE T"]]) == 0


def test_an_empty_hypothesis_is_all_deletions_and_a_rate_may_exceed_one() -> None:
    assert phoneme_error_rate([""], [["K AE T"]]) == 1
    assert phoneme_error_rate(["A B C D E"], [["K"]]) == 5


def test_references_that_are_all_empty_are_rejected() -> None:
    with pytest.raises(DataError, match="every reference is empty"):
        phoneme_error_rate(["A", ""], [[""], [""]])


def test_unequal_and_empty_corpora_are_rejected() -> None:
    for rate in (exact_match, word_error_rate, phoneme_error_rate):
        with pytest.raises(DataError, match="2 hypotheses but 1"):
            rate(["a", "b"], [["a"]])
        with pytest.raises(DataError, match="no hypotheses"):
            rate([], [])


def test_a_rate_is_shown_in_percent_with_its_rule() -> None:
    score = EXACT_MATCH.score(["a", "b", "c"], [["a"], ["c", "b"], ["d"]])
    assert str(score).startswith("exact_match|nrefs:var|rule:text-equals-any|version:")
    assert str(score).endswith(" = 66.67 %")
    assert score.to_json()["value"] == 2 / 3
