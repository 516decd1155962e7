"""Table 3 in small: the paper's relative changes, the verdicts, and the whole table from the tiniest models."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from transduce.evaluation.significance import Interval
from transduce.experiments import table_3
from transduce.experiments.finding import Conditions
from transduce.experiments.table_3 import (
    BASE,
    ROWS,
    MeasuredRow,
    TableSizes,
    direction,
    finding,
    run,
    trial_of,
    verdict,
)
from transduce.experiments.trials import Measured, TrialResult
from transduce.models.catalog import build, read_model_table
from transduce.models.interface import VocabularySizes

PAPER = TableSizes(model_dim=512, num_layers=6)
PUBLISHED = {"A": 65, "B d_k = 16": 58, "B d_k = 32": 60, "C N = 2": 36, "C N = 4": 50, "C N = 8": 80, "C d = 256": 28}
PUBLISHED |= {"C d = 1024": 168, "C d_ff = 1024": 53, "C d_ff = 4096": 90, "base": 65}


def test_at_the_papers_size_the_rows_have_the_papers_parameters() -> None:
    for row in ROWS:
        millions = PUBLISHED.get(row.name, PUBLISHED.get(row.group))
        if millions is not None:
            table = {**trial_of(row, PAPER).model, "norm": "post"}
            with torch.device("meta"):
                model = build(read_model_table(table, row.name), VocabularySizes(41_100, 41_100))
            assert round(sum(weight.numel() for weight in model.parameters()) / 1e6) == millions, row.name


def test_heads_divide_the_width_and_regularisation_goes_to_its_table() -> None:
    trials = {row.name: trial_of(row, TableSizes()) for row in ROWS}
    assert len({trial.name for trial in trials.values()}) == len(ROWS) == 19
    assert [trials[f"A h = {heads}"].model["key_dim"] for heads in (1, 4, 16, 32)] == [64, 16, 4, 2]
    assert trials["B d_k = 16"].model["key_dim"] == 2 and trials["B d_k = 16"].model["value_dim"] == 8
    assert trials["D smoothing 0.2"].training["label_smoothing"] == 0.2
    assert trials["D dropout 0"].model["dropout"] == 0.0


def test_a_verdict_needs_a_difference_larger_than_the_noise() -> None:
    assert [direction(value, 0.1) for value in (-0.2, 0.05, 0.2)] == ["better", "same", "worse"]
    assert verdict(0.2, 0.1, 0.3) == verdict(0.01, 0.02, 0.0) == "as in the paper"
    assert verdict(-0.2, 0.1, 0.3) == "opposite"
    assert verdict(0.05, 0.1, 0.3) == "not distinguishable"
    assert verdict(0.01, 0.1, 0.0) == "not distinguishable"  # such noise does not show that they are equal
    assert verdict(0.2, 0.1, 0.0) == "differs"


def _measured(losses: dict[str, list[float]]) -> list[MeasuredRow]:
    result = TrialResult(1, 1, 1.0, 1.0, 1.0, (), ("x",))
    rows = []
    for row in ROWS:
        results = tuple(replace(result, perplexity=math.exp(loss)) for loss in losses[row.name])
        bleu = row.bleu
        found = Measured(results, Interval(bleu, bleu, bleu - 1, bleu + 1, 10), (bleu,) * len(results))
        rows.append(MeasuredRow(row, found))
    return rows


def test_the_papers_own_numbers_confirm_the_paper() -> None:
    losses = {row.name: [math.log(row.perplexity) + noise for noise in (-1e-3, 1e-3)] for row in ROWS}
    found = finding(_measured(losses), {})
    assert found.outcome == "holds"
    assert found.checks[0].statement.count("is 1.00") == 1


def test_the_reverse_order_contradicts_it() -> None:
    losses = {row.name: [-math.log(row.perplexity) + noise for noise in (-1e-3, 1e-3)] for row in ROWS}
    found = finding(_measured(losses), {})
    assert not found.checks[0].passed and "is -1.00" in found.checks[0].statement
    assert "opposite" in {row[-1] for row in found.rows}


def test_the_tiniest_table_is_complete_and_the_same_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_3, "ROWS", (BASE, *(row for row in ROWS if row.change in ("h = 1", "N = 2"))))
    sizes = TableSizes(8, 3, 8, 64, 2, 0.01, 300, 20, 2, seeds=2, close=0.0)
    found = run(Conditions(folder=tmp_path), sizes)
    assert len(found.rows) == 3 and found.rows[0][:2] == (BASE.group, BASE.change)
    assert len(list(tmp_path.glob("*/result.json"))) == 4
    kept = next(tmp_path.glob("c-n-2-*/result.json"))
    kept.unlink()
    assert run(Conditions(folder=tmp_path), sizes).rows == found.rows
