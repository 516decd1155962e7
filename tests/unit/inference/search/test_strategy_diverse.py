"""Groups of openings that keep out of each other's way."""

from __future__ import annotations

import pytest
import torch

from tests.unit.inference.search.toy import END, Toy, random_table, translate, written_table
from transduce.errors import SettingsError
from transduce.inference.search.active_request import ActiveRequest
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.search.strategy import StepScores, diverse
from transduce.text.tokenizer.special import Specials

SOURCE = (4, 1, 5)


def sentence(**options: object) -> ActiveRequest:
    request = Request(0, SOURCE, SearchOptions.from_table(options, "a test"))
    return ActiveRequest.of(request, Specials(pad=0, start=3, end=END), None)


def test_a_later_group_avoids_what_an_earlier_one_chose_but_keeps_the_true_score() -> None:
    score_SWV = torch.tensor([[[-1.0, -1.5, -9.0, -9.0], [-1.0, -1.5, -9.0, -9.0]]])
    ways = StepScores(score_SWV, torch.zeros(1, 2))
    choice = diverse(ways, END, [sentence(beam_size=2, beam_groups=2, diversity_penalty=0.6)])
    assert choice.tokens.tolist() == [[0, 1]]
    assert choice.parents.tolist() == [[0, 1]]
    assert choice.scores.tolist() == [[-1.0, -1.5]]
    weak = diverse(ways, END, [sentence(beam_size=2, beam_groups=2, diversity_penalty=0.4)])
    assert weak.tokens.tolist() == [[0, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_groups_without_any_penalty_are_small_beams_that_say_the_same(seed: int) -> None:
    """Three groups of two, strength nought: the answers are those of one beam of two."""
    given = {"max_length": 5, "stop_rule": "beam_finished"}
    several = translate(
        Toy(random_table(seed)), SOURCE, beam_size=6, n_best=2, beam_groups=3, diversity_penalty=0.0, **given
    )
    assert several == translate(Toy(random_table(seed)), SOURCE, beam_size=2, n_best=2, **given)


def test_an_n_best_list_has_the_best_of_every_group_first() -> None:
    """One good way to begin with many endings, and two others: a plain beam gives the first way only."""
    endings = {1: 0.4, 4: 0.35, 5: 0.25}
    ends = {(begun, last): {END: 1.0} for begun in (1, 4, 5) for last in (1, 4, 5)}
    row = written_table({(): {1: 0.8, 4: 0.12, 5: 0.08}, **{(begun,): endings for begun in (1, 4, 5)}, **ends})
    plain = translate(Toy(row), SOURCE, beam_size=3, n_best=3)
    apart = translate(Toy(row), SOURCE, beam_size=3, n_best=3, beam_groups=3, diversity_penalty=5.0)
    assert [one.tokens[0] for one in plain] == [1, 1, 1]
    assert sorted(one.tokens[0] for one in apart) == [1, 4, 5]
    assert len({tuple(one.tokens) for one in apart}) == 3


@pytest.mark.parametrize("option", [{"beam_size": 4, "beam_groups": 3}, {"method": "greedy", "beam_groups": 2}])
def test_a_beam_that_cannot_be_divided_is_rejected(option: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="groups"):
        SearchOptions.from_table(option, "a test")
