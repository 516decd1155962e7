"""Tokens are drawn as often as they are likely; seeds, neighbours and filters do what they say."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from tests.unit.inference.search.toy import (
    END,
    SPECIALS,
    START,
    Toy,
    random_table,
    search_all,
    translate,
    written_table,
)
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.search.search import Search
from transduce.inference.search.strategy import likeliest

CHANCES = {1: 0.5, 4: 0.3, 5: 0.15, END: 0.05}
TABLE = {(): CHANCES, **{(token,): {END: 1.0} for token in CHANCES}}


def first_tokens(count: int, **options: object) -> Counter[int]:
    """Draw many answers in many requests; what each began with."""
    toy, search = Toy(written_table(TABLE)), Search(Toy(written_table(TABLE)), SPECIALS, SPECIALS)
    assert toy.max_target is None
    given = {"method": "sample", "n_best": 250, **options}
    search.admit(
        [
            Request(seed, [4], SearchOptions.from_table({**given, "seed": seed}, "a test"))
            for seed in range(count // 250)
        ]
    )
    found = search_all(search)
    return Counter(answer.tokens[0] if answer.tokens else END for answers in found.values() for answer in answers)


def chi_square(found: Counter[int], expected: dict[int, float]) -> float:
    total = found.total()
    return sum((found[token] - total * share) ** 2 / (total * share) for token, share in expected.items())


LIMIT = {1: 10.83, 2: 13.82, 3: 16.27}
"""Chi-square that is exceeded once in a thousand times, by degrees of freedom; seeds are fixed."""


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    total = sum(share ** (1 / temperature) for share in CHANCES.values())
    expected = {token: share ** (1 / temperature) / total for token, share in CHANCES.items()}
    found = first_tokens(20_000, temperature=temperature)
    assert set(found) <= set(expected)
    assert chi_square(found, expected) < LIMIT[3]


@pytest.mark.parametrize(
    ("option", "left"),
    [
        ({"top_k": 2}, [1, 4]),
        ({"top_p": 0.79}, [1, 4]),
        ({"top_p": 0.81}, [1, 4, 5]),
        ({"min_p": 0.2}, [1, 4, 5]),
        ({"min_p": 0.61}, [1]),
        ({"top_k": 3, "top_p": 0.5}, [1]),
    ],
)
def test_what_is_left_out_is_never_drawn_and_the_rest_keeps_its_odds(option: dict[str, float], left: list[int]) -> None:
    found = first_tokens(5_000, **option)
    assert sorted(found) == left
    total = sum(CHANCES[token] for token in left)
    if len(left) > 1:
        assert chi_square(found, {token: CHANCES[token] / total for token in left}) < LIMIT[len(left) - 1]


def test_the_likeliest_token_is_always_left() -> None:
    options = SearchOptions(method="sample", top_p=1e-9, min_p=1.0)
    chance, order = likeliest(torch.tensor([[[0.1, 0.7, 0.2]]]).log(), [options])
    assert chance[0, 0].gt(0).tolist() == [True, False, False]
    assert order[0, 0].tolist() == [1, 2, 0]


def test_a_temperature_near_zero_is_greedy() -> None:
    toy = Toy(random_table(3))
    greedy = translate(toy, [4, 5], method="greedy", max_length=7)
    cold = translate(toy, [4, 5], method="sample", temperature=1e-4, seed=1, max_length=7)
    assert [(found.tokens, found.ended) for found in cold] == [(found.tokens, found.ended) for found in greedy]


def test_a_score_is_the_models_own_log_probability_whatever_was_drawn_from() -> None:
    for found in translate(Toy(written_table(TABLE)), [4], method="sample", n_best=9, temperature=3.0, top_k=3, seed=5):
        expected = math.log(CHANCES[found.tokens[0] if found.tokens else END])
        assert found.log_probability == pytest.approx(expected, abs=1e-5)


def test_the_same_seed_gives_the_same_hypotheses_and_another_gives_others() -> None:
    toy = Toy(random_table(2))
    given = {"method": "sample", "n_best": 5, "max_length": 8}
    first, again, other = (translate(toy, [4, 1, 5], **given, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert len({tuple(found.tokens) for found in first}) > 1
    assert translate(toy, [4, 1], **given, seed=7) != first


def test_without_a_seed_every_time_is_another() -> None:
    toy = Toy(random_table(2))
    found = [translate(toy, [4, 1, 5], method="sample", n_best=20, max_length=8) for _ in range(2)]
    assert found[0] != found[1]


def test_neighbours_do_not_change_a_sample() -> None:
    toy = Toy(random_table(4))
    options = SearchOptions(method="sample", n_best=3, seed=1, max_length=9)
    alone = translate(toy, [5, 4], method="sample", n_best=3, seed=1, max_length=9)
    search = Search(toy, SPECIALS, SPECIALS)
    search.admit([Request(number, [1] * number, options) for number in range(1, 5)])
    search.advance()
    search.admit([Request(7, [5, 4], options), Request(8, [4], SearchOptions(beam_size=2))])
    assert search_all(search)[7] == alone


def test_special_tokens_are_never_drawn() -> None:
    toy = Toy(written_table({(): {START: 0.6, 0: 0.3, 1: 0.1}, (1,): {END: 1.0}}))
    for found in translate(toy, [4], method="sample", n_best=20, seed=3):
        assert found.tokens == [1]
