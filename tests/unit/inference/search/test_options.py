"""Search options: defaults, validation, overrides."""

from __future__ import annotations

from typing import Any

import pytest

from transduce.errors import SettingsError
from transduce.inference.search.options import SearchOptions, override_options


def test_the_defaults_are_those_of_section_6_1() -> None:
    options = SearchOptions()
    assert (options.method, options.beam_size, options.length_penalty) == ("beam", 4, 0.6)
    assert (options.length_normalization, options.max_extra, options.max_length, options.n_best) == (
        "gnmt",
        50,
        None,
        1,
    )


def test_a_greedy_search_takes_one_row_whatever_the_beam() -> None:
    assert SearchOptions(method="greedy", beam_size=7).width == 1
    assert SearchOptions(beam_size=7).width == 7


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"beam_size": 0}, "beam_size = 0"),
        ({"beam_size": 257}, "beam_size = 257"),
        ({"length_penalty": -0.1}, "length_penalty = -0.1"),
        ({"length_penalty": float("nan")}, "length_penalty = nan"),
        ({"max_length": 0}, "max_length = 0"),
        ({"max_extra": -1}, "max_extra = -1"),
        ({"method": "sampling"}, "method = 'sampling'"),
        ({"length_normalization": "wu"}, "length_normalization = 'wu'"),
        ({"beam_size": 3, "n_best": 5}, "n_best 5 needs a beam_size of at least 5, not 3"),
        ({"method": "greedy", "n_best": 2}, "n_best 2 needs a beam_size of at least 2, not 1"),
        ({"diversity_penalty": 9.0}, "diversity_penalty has no effect with one group"),
        ({"bean_size": 3}, "did you mean 'beam_size'?"),
    ],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_rejected_by_name(option: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        SearchOptions.from_table(option, "the search")
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("the search")


def test_overriding_the_method_drops_the_options_of_the_old_one() -> None:
    for saved in (
        SearchOptions(beam_size=4, beam_groups=2),
        SearchOptions(beam_size=4, beam_groups=4, coverage_penalty=0.2, diversity_penalty=1.0),
    ):
        for overrides in ({"method": "greedy"}, {"method": "sample"}, {"temperature": 0.5}):
            found = override_options(saved, **overrides)
            assert (found.beam_groups, found.coverage_penalty, found.diversity_penalty) == (1, 0.0, 0.5)
    assert override_options(SearchOptions(beam_size=4, beam_groups=2), n_best=5).beam_size == 6
    grouped = SearchOptions(beam_size=4, beam_groups=2, diversity_penalty=1.0)
    assert override_options(grouped, beam_groups=1).diversity_penalty == 0.5
    for overrides in ({"seed": 1}, {"method": "sample"}):
        with pytest.raises(SettingsError, match="beam_size"):
            override_options(SearchOptions(), beam_size=8, **overrides)
    with pytest.raises(SettingsError, match="beam_groups = 0"):
        override_options(SearchOptions(beam_size=4), n_best=2, beam_groups=0)
