"""The trace of a search: every candidate that was kept, finished or pruned, with its reason."""

from __future__ import annotations

import math

import pytest

from tests.unit.inference.search.toy import END, SPECIALS, Toy, random_table, written_table
from transduce.inference.search.options import Request, Result, SearchOptions
from transduce.inference.search.search import Search

SOURCE = (4, 1, 5)


def traced(model: Toy, trace: bool = True, **options: object) -> Result:
    search = Search(model, SPECIALS, SPECIALS)
    search.admit([Request(3, SOURCE, SearchOptions.from_table(options, "a test"), trace=trace)])
    found: list[Result] = []
    while search.active:
        found += search.advance()
    return found[0]


def test_each_candidate_has_its_outcome_and_reason() -> None:
    row = written_table({(): {4: 0.5, 5: 0.3, END: 0.15, 1: 0.05}, (4,): {END: 0.9, 1: 0.1}, (5,): {END: 1.0}})
    result = traced(Toy(row), beam_size=2, n_best=2, stop_rule="beam_finished", length_penalty=0.0)
    first, second, stop = result.trace
    assert [(one.token, one.outcome, one.beam, one.reason) for one in first.candidates] == [
        (4, "kept", 0, None),
        (5, "kept", 1, None),
        (END, "pruned", None, "end_outscored"),
        (1, "pruned", None, "outscored"),
    ]
    assert [one.log_probability for one in first.candidates] == pytest.approx(
        [math.log(share) for share in (0.5, 0.3, 0.15, 0.05)], rel=1e-5
    )
    assert [(one.parent, one.token, one.outcome) for one in second.candidates[:2]] == [
        (0, END, "finished"),
        (1, END, "finished"),
    ]
    assert (first.length, second.length, stop.length) == (0, 1, 2)
    assert {one.reason for one in stop.candidates} <= {"stopped"}


@pytest.mark.parametrize(
    "options",
    [
        {"method": "greedy"},
        {"beam_size": 4, "n_best": 4},
        {"beam_size": 4, "beam_groups": 2, "n_best": 4},
        {"method": "sample", "n_best": 3, "seed": 7},
    ],
    ids=str,
)
def test_the_tree_leads_to_every_hypothesis(options: dict[str, object]) -> None:
    """Following kept candidates from step to step, and a finished one at the end, gives each hypothesis that ended."""
    for seed in range(7):
        result = traced(Toy(random_table(seed)), max_length=6, **options)
        assert result.hypotheses == traced(Toy(random_table(seed)), trace=False, max_length=6, **options).hypotheses
        beams: dict[int, list[int]] = {beam: [] for beam in range(8)}
        ended = []
        for step in result.trace:
            ended += [beams[one.parent] for one in step.candidates if one.outcome == "finished"]
            beams = {
                one.beam: [*beams[one.parent], one.token]
                for one in step.candidates
                if one.beam is not None and one.token is not None
            }
        assert all(one.tokens in ended for one in result.hypotheses if one.ended)


def test_no_trace_unless_requested() -> None:
    assert traced(Toy(random_table(1)), trace=False).trace == ()
