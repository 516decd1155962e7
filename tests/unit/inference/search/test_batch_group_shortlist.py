"""Searches over a part of the vocabulary, held against models that give the rest no probability."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch

from tests.unit.inference.search.toy import END, PAD, SPECIALS, START, Prefix, Row, Toy, random_table, search_all
from tests.unit.inference.test_ensemble import ToyEnsemble, members
from transduce.inference.ensemble import Ensemble
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.search import Search
from transduce.models.interface import AnyTransducer

SIZE = 23
LISTS = [[4, 5, 6, 7], [END, 8, 9, 4, 10], [1, 20, 21, 22, 5, START, PAD], [11], list(range(SIZE))]
WISHES: dict[str, dict[str, object]] = {
    "greedy": {"method": "greedy"},
    "beam": {"beam_size": 4, "n_best": 3},
    "exact": {"beam_size": 3, "stop_rule": "exact", "length_normalization": "power", "length_penalty": 1.0},
    "sample": {"method": "sample", "n_best": 3, "seed": 5},
    "top_k": {"method": "sample", "n_best": 2, "seed": 7, "top_k": 2},
    "penalties": {"beam_size": 4, "repetition_penalty": 1.5, "frequency_penalty": 0.3, "no_repeat_ngram_size": 2},
    "at least": {"beam_size": 4, "min_length": 5},
}


def restricted(row: Row, allowed: Sequence[int]) -> Row:
    """The same table without any probability for tokens that are not in a list; the end always has some."""
    kept = sorted({*allowed, END})

    def some(source: Prefix, prefix: Prefix) -> torch.Tensor:
        score_V = torch.full((SIZE,), -torch.inf)
        score_V[kept] = row(source, prefix)[kept]
        return score_V

    return some


def answers(model: AnyTransducer, requests: Sequence[Request]) -> dict[int, list[Hypothesis]]:
    search = Search(model, SPECIALS, SPECIALS)
    search.admit(requests)
    return search_all(search)


def same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-5)


def options(name: str) -> SearchOptions:
    return SearchOptions.from_table({"max_length": 9, **WISHES[name]}, "a test")


@pytest.mark.parametrize("name", WISHES)
@pytest.mark.parametrize("place", range(len(LISTS)))
def test_only_candidates_have_a_probability(name: str, place: int) -> None:
    row, allowed = random_table(seed=place, vocabulary=SIZE), LISTS[place]
    (found,) = answers(Toy(row, SIZE), [Request(1, [4, 5], options(name), shortlist=allowed)]).values()
    (expected,) = answers(Toy(restricted(row, allowed), SIZE), [Request(1, [4, 5], options(name))]).values()
    same(found, expected)
    assert {token for one in found for token in one.tokens} <= {*allowed} - {PAD, START}


@pytest.mark.parametrize("name", WISHES)
def test_neighbours_do_not_matter(name: str) -> None:
    """Lists of different sizes, some requests without one, some that come later: each answer is the one found alone."""
    row, draw = random_table(seed=3, vocabulary=SIZE), random.Random(name)
    requests = [
        Request(number, [draw.randrange(4, SIZE) for _ in range(number % 4)], options(name), shortlist=allowed)
        for number, allowed in enumerate([*LISTS, None, *reversed(LISTS), None])
    ]
    alone = {request.id: answers(Toy(row, SIZE), [request])[request.id] for request in requests}
    search = Search(Toy(row, SIZE), SPECIALS, SPECIALS)
    together: dict[int, list[Hypothesis]] = {}
    for start in range(0, len(requests), 5):
        search.admit(requests[start : start + 5])
        together |= {result.id: result.hypotheses for result in search.advance()}
    together |= search_all(search)
    assert together.keys() == alone.keys()
    for number, found in together.items():
        same(found, alone[number])


def test_a_prefix_may_lie_outside_of_the_list() -> None:
    row = random_table(seed=1, vocabulary=SIZE)
    request = Request(1, [4], options("beam"), prefix=[15, 16], shortlist=[4, 5, 6])
    for found in answers(Toy(row, SIZE), [request])[1]:
        assert found.tokens[:2] == [15, 16]
        assert {*found.tokens[2:]} <= {4, 5, 6}


def test_what_is_forbidden_stays_forbidden() -> None:
    row = random_table(seed=2, vocabulary=SIZE)
    request = Request(1, [4], options("beam"), forbidden=[[5], [4, 4], [19]], shortlist=[4, 5, 6])
    written = [one.tokens for one in answers(Toy(row, SIZE), [request])[1]]
    assert all(5 not in tokens and (4, 4) not in pairwise(tokens) for tokens in written)


@pytest.mark.parametrize("name", WISHES)
def test_an_ensemble_is_the_mean_over_each_list(name: str) -> None:
    tables = [random_table(seed, vocabulary=SIZE) for seed in (1, 2, 3)]
    requests = [Request(number, [4], options(name), shortlist=allowed) for number, allowed in enumerate(LISTS)]
    together = answers(ToyEnsemble([Toy(table, SIZE) for table in tables]), requests)
    for request in requests:
        assert request.shortlist is not None
        some = [Toy(restricted(table, list(request.shortlist)), SIZE) for table in tables]
        (expected,) = answers(ToyEnsemble(some), [Request(1, [4], request.options)]).values()
        same(together[request.id], expected)


def test_a_list_of_all_tokens_changes_nothing_for_real_models() -> None:
    """Models of the catalog, alone and together; with lists that end at different steps."""
    given = SearchOptions(beam_size=3, n_best=2, max_length=7)
    sources = [[4, 5, 1], [7], [9, 10, 4, 4, 6], [5, 5]]
    for model in (*members(), Ensemble(members()).eval()):
        free = answers(model, [Request(number, source, given) for number, source in enumerate(sources)])
        every = list(range(11))
        listed = answers(model, [Request(number, one, given, shortlist=every) for number, one in enumerate(sources)])
        for number in free:
            same(listed[number], free[number])


def test_rows_of_the_output_are_not_gathered_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Toy(random_table(seed=1, vocabulary=SIZE), SIZE)
    gathered: list[int] = []
    whole = model.output.part
    monkeypatch.setattr(model.output, "part", lambda tokens: (gathered.append(len(tokens)), whole(tokens))[1])
    requests = [Request(number, [4] * number, options("beam"), shortlist=LISTS[number % 3]) for number in range(8)]
    answers(model, requests)
    assert 1 <= len(gathered) <= 4 < len(model.steps)
