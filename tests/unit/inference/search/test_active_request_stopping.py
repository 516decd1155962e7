"""Answers that end where they are told to, and what is certain of answers that have not ended."""

from __future__ import annotations

from tests.unit.inference.search.toy import END, SPECIALS, Toy, random_table, written_table
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.search.search import Search

SOURCE = (4, 1, 5)
ONE_WAY = {(): {1: 1.0}, (1,): {4: 0.5, 5: 0.5}, (1, 4): {5: 1.0}, (1, 4, 5): {END: 1.0}, (1, 5): {END: 1.0}}


def test_a_translation_ends_at_a_stop_string_without_an_end_token() -> None:
    options = SearchOptions(method="greedy")
    search = Search(Toy(written_table({**ONE_WAY, (1,): {4: 1.0}})), SPECIALS, SPECIALS)
    search.admit([Request(0, SOURCE, options, should_stop=lambda tokens: tokens[-1] == 4), Request(1, SOURCE, options)])
    found = {}
    while search.active:
        found |= {result.id: result.hypotheses[0] for result in search.advance()}
    assert (found[0].tokens, found[0].ended, found[0].log_probability) == ([1, 4], True, 0.0)
    assert found[1].tokens == [1, 4, 5]


def test_openings_of_a_beam_end_each_for_itself() -> None:
    search = Search(Toy(written_table(ONE_WAY)), SPECIALS, SPECIALS)
    search.admit([Request(0, SOURCE, SearchOptions(beam_size=2, n_best=2), should_stop=lambda tokens: tokens[-1] == 4)])
    while search.active:
        results = search.advance()
    assert sorted(found.tokens for found in results[0].hypotheses) == [[1, 4], [1, 5]]


def test_the_common_prefix_of_all_beams_grows_and_begins_the_hypothesis() -> None:
    for seed in range(20):
        search = Search(Toy(random_table(seed)), SPECIALS, SPECIALS)
        search.admit([Request(0, SOURCE, SearchOptions(beam_size=3, max_length=8))])
        certain: list[list[int]] = []
        results = []
        while search.active:
            certain += search.agreed().values()
            results += search.advance()
        answer = results[0].hypotheses[0].tokens
        assert all(answer[: len(begun)] == begun for begun in certain)
        assert [len(begun) for begun in certain] == sorted(len(begun) for begun in certain)
