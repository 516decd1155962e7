"""What may be asked of a search, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from transduce.errors import SettingsError
from transduce.inference.search.options import SearchOptions, with_wishes


def test_the_defaults_are_those_of_section_6_1() -> None:
    options = SearchOptions()
    assert (options.method, options.beam, options.alpha) == ("beam", 4, 0.6)
    assert (options.length_penalty, options.max_extra, options.max_length, options.n_best) == ("gnmt", 50, None, 1)


def test_a_greedy_search_takes_one_row_whatever_the_beam() -> None:
    assert SearchOptions(method="greedy", beam_size=7).width == 1
    assert SearchOptions(beam_size=7).width == 7


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"beam_size": 0}, "beam = 0"),
        ({"beam_size": 257}, "beam = 257"),
        ({"length_penalty": -0.1}, "alpha = -0.1"),
        ({"length_penalty": float("nan")}, "alpha = nan"),
        ({"max_length": 0}, "max_length = 0"),
        ({"max_extra": -1}, "max_extra = -1"),
        ({"method": "sampling"}, "method = 'sampling'"),
        ({"length_penalty": "wu"}, "length_penalty = 'wu'"),
        ({"beam_size": 3, "n_best": 5}, "5 translations need a beam of at least 5, not 3; raise beam or lower n_best"),
        ({"method": "greedy", "n_best": 2}, "2 translations need a beam of at least 2, not 1"),
        ({"diversity_penalty": 9.0}, "diversity tells the groups of a beam apart, and there is one only"),
        ({"bean": 3}, "did you mean 'beam'?"),
    ],
    ids=str,
)
def test_a_wish_that_makes_no_sense_is_refused_by_name(wish: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        SearchOptions.from_table(wish, "the search")
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("the search")


def test_wishes_for_another_way_to_search_leave_what_belongs_to_a_beam() -> None:
    for saved in (
        SearchOptions(beam_size=4, beam_groups=2),
        SearchOptions(beam_size=4, beam_groups=4, coverage_penalty=0.2, diversity_penalty=1.0),
    ):
        for wishes in ({"method": "greedy"}, {"method": "sample"}, {"temperature": 0.5}):
            found = with_wishes(saved, **wishes)
            assert (found.groups, found.coverage, found.diversity) == (1, 0.0, 0.5)
    assert with_wishes(SearchOptions(beam_size=4, beam_groups=2), n_best=5).beam == 6
    assert with_wishes(SearchOptions(beam_size=4, beam_groups=2, diversity_penalty=1.0), beam_groups=1).diversity == 0.5
    for wishes in ({"seed": 1}, {"method": "sample"}):
        with pytest.raises(SettingsError, match="ask for one of them"):
            with_wishes(SearchOptions(), beam_size=8, **wishes)
    with pytest.raises(SettingsError, match="groups = 0 is not possible"):
        with_wishes(SearchOptions(beam_size=4), n_best=2, beam_groups=0)
