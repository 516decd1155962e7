"""Words that have to be said: said they are, and as likely as exhaustive search says they can be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inference.search.toy import SPECIALS, WORDS, Toy, every_hypothesis, random_table, search_all
from transduce.inference.search.constraint import ConstraintCandidate, ConstraintProgress, allocate_beam
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.search import Search

SOURCE = (4, 1, 5)
PHRASES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), min_size=1, max_size=2)


def has(tokens: list[int], phrase: list[int]) -> bool:
    return any(tokens[place : place + len(phrase)] == phrase for place in range(len(tokens)))


def forced(seed: int, phrases: list[list[int]], beam_size: int, max_length: int) -> list[Hypothesis]:
    options = SearchOptions(beam_size=beam_size, max_length=max_length, stop_rule="exact")
    search = Search(Toy(random_table(seed)), SPECIALS, SPECIALS)
    search.admit([Request(3, SOURCE, options, required=phrases)])
    return search_all(search)[3]


@given(tokens=st.lists(st.sampled_from((1, 4)), max_size=12), phrase=st.lists(st.sampled_from((1, 4)), min_size=1))
def test_progress_is_the_longest_beginning_that_a_hypothesis_ends_with(tokens: list[int], phrase: list[int]) -> None:
    """Also where a phrase begins anew within itself, as 1 1 4 does in 1 1 1 4."""
    progress = ConstraintProgress.none([phrase])
    for token in tokens:
        progress = progress.after(token)
    message = has(tokens, phrase)
    assert progress.is_whole == message
    endings = [size for size in range(len(phrase)) if size == 0 or tokens[-size:] == phrase[:size]]
    assert progress.tokens_met == (len(phrase) if message else max(endings))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 99), phrases=PHRASES, beam_size=st.integers(1, 5))
def test_every_hypothesis_of_any_beam_has_the_required_phrases(
    seed: int, phrases: list[list[int]], beam_size: int
) -> None:
    (best,) = forced(seed, phrases, beam_size, max_length=9)
    assert all(has(best.tokens, phrase) for phrase in phrases)


@pytest.mark.parametrize("seed", range(9))
def test_a_wide_beam_finds_the_likeliest_hypothesis_with_the_phrases(seed: int) -> None:
    phrases = [[5, 1], [4]]
    options = SearchOptions(beam_size=200, max_length=5, stop_rule="exact")
    every = every_hypothesis(random_table(seed), SOURCE, options, 5)
    expected = next(one for one in every if one.ended and all(has(one.tokens, phrase) for phrase in phrases))
    (found,) = forced(seed, phrases, beam_size=200, max_length=5)
    assert found.tokens == expected.tokens
    assert found.score == pytest.approx(expected.score, rel=1e-5)


def test_beam_places_go_in_turns_to_those_with_most_of_the_phrases() -> None:
    none = ConstraintProgress.none([[7, 8, 9]])
    one = none.after(7)
    going = [
        ConstraintCandidate(-score, 0, token, at) for score, token, at in ((1, 3, none), (2, 3, one), (3, 4, none))
    ]
    going += [ConstraintCandidate(-4.0, 1, 8, one), ConstraintCandidate(-5.0, 2, 7, none)]
    kept = allocate_beam(going, 3)
    assert [(kept_one.score, kept_one.progress.tokens_met) for kept_one in kept] == [(-1.0, 0), (-4.0, 2), (-5.0, 1)]


def test_neighbours_with_and_without_constraints_do_not_disturb_each_other() -> None:
    options = SearchOptions(beam_size=3, max_length=6)
    overrides = [
        Request(0, SOURCE, options, required=[[5, 5]]),
        Request(1, SOURCE, options),
        Request(2, (1, 1), options),
    ]
    alone = {}
    for request in overrides:
        search = Search(Toy(random_table(1)), SPECIALS, SPECIALS)
        search.admit([request])
        alone |= search_all(search)
    search = Search(Toy(random_table(1)), SPECIALS, SPECIALS)
    search.admit(overrides)
    assert search_all(search) == alone
