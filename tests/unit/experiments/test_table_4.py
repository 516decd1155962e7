"""Table 4 in small: the whole study from the tiniest models, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from transduce.evaluation.significance import Interval
from transduce.experiments.finding import Conditions
from transduce.experiments.table_4 import RECURRENT, TRANSFORMER, ParsedCell, ParsingSizes, finding, run
from transduce.experiments.trials import Measured, TrialResult

RESULT = TrialResult(1, 1, 1.0, 1.0, 2.0, (), ("(S w )",))


def _cell(model: str, *scores: float) -> ParsedCell:
    mean = sum(scores) / len(scores)
    found = Measured((RESULT,) * len(scores), Interval(mean, mean, mean - 1, mean + 1, 10), scores)
    return ParsedCell(model, 100, 0.003, found, 1.0)


def test_the_verdict_needs_every_seed_and_the_interval() -> None:
    for ours, theirs, outcome in [
        ((80.0, 81.0), (70.0, 71.0), "holds"),
        ((80.0, 70.0), (70.5, 71.0), "does not hold"),
        ((80.0,), (79.0,), "does not hold"),
    ]:
        assert finding([_cell(TRANSFORMER, *ours), _cell(RECURRENT, *theirs)], {}).outcome == outcome


def test_the_tiniest_study_is_complete(tmp_path: Path) -> None:
    sizes = replace(ParsingSizes(), width=8, num_layers=1, batch_tokens=64, updates=3, vocabulary=300, seeds=1)
    found = run(Conditions(folder=tmp_path), replace(sizes, sentences=(12,), held_out=3, rates=(1e-9, 0.003)))
    assert [row[0] for row in found.rows] == [TRANSFORMER, RECURRENT]
    assert [row[2] for row in found.rows] == [0.003, 0.003], "with a rate of nearly 0 nothing is learned"
    assert found.setting["test sentences"] == 3
