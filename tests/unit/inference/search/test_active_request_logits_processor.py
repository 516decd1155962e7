"""What changes scores before a token is chosen: by hand, and that each wish really has its effect in a search."""

from __future__ import annotations

import pytest
import torch

from tests.unit.inference.search.toy import END, WORDS, Toy, every_hypothesis, random_table, translate, written_table
from transduce.errors import TransduceError
from transduce.inference.search.active_request import (
    forbid_phrase,
    forbid_repeated_ngrams,
    logits_processors,
    penalize_count,
    penalize_repetition,
    require_length,
)
from transduce.inference.search.options import Request, SearchOptions

INF = float("inf")
WRITTEN = torch.tensor([[1, 4, 1], [5, 5, 5]])


def scores() -> torch.Tensor:
    return torch.tensor([[0.5, -2.0, 1.0, 0.0, 3.0, 4.0], [0.5, -2.0, 1.0, 0.0, 3.0, -4.0]])


def test_repetition_divides_what_is_positive_and_multiplies_what_is_negative() -> None:
    """Once, however often a token was written."""
    found = scores()
    penalize_repetition(2.0)(found, WRITTEN)
    assert found.tolist() == [[0.5, -4.0, 1.0, 0.0, 1.5, 4.0], [0.5, -2.0, 1.0, 0.0, 3.0, -8.0]]


def test_presence_is_taken_off_once_and_frequency_each_time() -> None:
    found = scores()
    penalize_count(0.5, 0.25)(found, WRITTEN)
    assert found.tolist() == [[0.5, -3.0, 1.0, 0.0, 2.25, 4.0], [0.5, -2.0, 1.0, 0.0, 3.0, -5.25]]


@pytest.mark.parametrize(
    ("size", "banned"),
    [(1, [{1, 4}, {5}]), (2, [{4}, {5}]), (3, [set(), {5}]), (4, [set(), set()])],
)
def test_no_row_of_tokens_is_written_twice(size: int, banned: list[set[int]]) -> None:
    found = scores()
    forbid_repeated_ngrams(size)(found, WRITTEN)
    assert [{token for token in range(6) if row[token] == -INF} for row in found.tolist()] == banned


@pytest.mark.parametrize(
    ("phrase", "banned"), [([4], [4, 4]), ([1, 4], [4, None]), ([5, 5, 2], [None, 2]), ([4, 4, 4, 4], [None, None])]
)
def test_a_forbidden_phrase_lacks_its_last_token_after_its_others(phrase: list[int], banned: list[int | None]) -> None:
    found = scores()
    forbid_phrase(phrase)(found, WRITTEN)
    for row, token in zip(found.tolist(), banned, strict=True):
        assert [place for place in range(6) if row[place] == -INF] == ([] if token is None else [token])


def test_nothing_ends_too_early() -> None:
    for length, may_end in ((3, True), (4, False)):
        found = scores()
        require_length(length, END)(found, WRITTEN)
        assert bool(found[:, END].isfinite().all()) is may_end


def test_without_options_there_is_no_processor() -> None:
    assert logits_processors(Request(1, [4], SearchOptions()), END) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_constraints_hold_for_every_hypothesis(method: str, seed: int) -> None:
    """Answers of at least three tokens, none of them twice in a row of two."""
    settings = {"method": method, "min_length": 3, "no_repeat_ngram_size": 2, "max_length": 6}
    settings |= {"seed": seed} if method == "sample" else {}
    (found, *_) = translate(Toy(random_table(seed)), [4, 5], **settings)
    assert len(found.tokens) >= 3
    pairs = list(zip(found.tokens, found.tokens[1:], strict=False))
    assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize("seed", range(5))
def test_an_exact_search_with_a_minimum_finds_the_best_of_those_that_are_long_enough(seed: int) -> None:
    """The truth is a list of all answers. A token that is not allowed gives its probability to the others."""
    row = random_table(seed)

    def without_short(source: tuple[int, ...], prefix: tuple[int, ...]) -> torch.Tensor:
        scores = row(source, prefix).clone()
        if len(prefix) < 2:
            scores[END] = -INF
        return scores.log_softmax(dim=-1)

    options = SearchOptions(beam_size=27, stop_rule="exact", max_length=4, min_length=2)
    (best, *_) = [found for found in every_hypothesis(without_short, [4], options, 4) if found.ended]
    (found, *_) = translate(Toy(row), [4], beam_size=27, stop_rule="exact", max_length=4, min_length=2)
    assert found.tokens == best.tokens
    assert found.log_probability == pytest.approx(best.log_probability, abs=1e-5)


def test_a_penalty_makes_a_model_that_repeats_itself_say_something_else() -> None:
    rows = {(): {1: 1.0}, (1,): {1: 0.6, 4: 0.4}, (1, 1): {END: 1.0}, (1, 4): {END: 1.0}}
    toy = Toy(written_table(rows))
    assert translate(toy, [4], method="greedy")[0].tokens == [1, 1]
    for option in ({"presence_penalty": 1.0}, {"frequency_penalty": 1.0}, {"repetition_penalty": 3.0}):
        assert translate(toy, [4], method="greedy", **option)[0].tokens == [1, 4]


def test_constraints_that_nothing_can_meet_are_reported() -> None:
    """Three words, none of them twice, and at least five of them."""
    assert len(WORDS) == 3
    with pytest.raises(TransduceError, match="min_length"):
        translate(Toy(random_table(1)), [4], min_length=5, no_repeat_ngram_size=1, max_length=9)
