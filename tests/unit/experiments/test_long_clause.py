"""The long-clause study: distances at which accuracy falls, chosen rates, table, charts and checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.experiments.test_clause_trials import TINY
from transduce.experiments.catalog import reproduce
from transduce.experiments.clause_trials import MODELS, ClauseResult, ClauseResults, ClauseTrial
from transduce.experiments.finding import Conditions
from transduce.experiments.long_clause import falls_below, finding_of, mean_over_seeds, run
from transduce.experiments.report import draw


def test_the_distance_of_a_fall_is_interpolated_in_its_logarithm() -> None:
    accuracy = {1: 1.0, 10: 0.9, 100: 0.1}
    assert falls_below(accuracy, 0.5) == pytest.approx(10**1.5)
    assert falls_below(accuracy, 0.05) is None
    assert falls_below({2: 0.3, 4: 0.8}, 0.5) == 2.0


def made_up(recurrent: dict[int, float], gradient: float, alone: float) -> ClauseResults:
    """Results of a Transformer that knows everything, and of recurrent networks as given."""
    seeds, trials = (3, 4), {}
    for model in MODELS:
        known = model == "Transformer"
        accuracy = dict.fromkeys(TINY.distances, 1.0) if known else recurrent
        norms = {each: 1.0 if known else gradient ** (each - 1) for each in TINY.distances}
        for seed in seeds:
            trials[ClauseTrial(model, 0.02, seed)] = ClauseResult(2, 1.0, accuracy, norms, norms)
            trials[ClauseTrial(model, 0.02, seed, 4)] = ClauseResult(2, 1.0, {4: 1.0 if known else alone})
    return ClauseResults(TINY, dict.fromkeys(MODELS, 0.02), trials, seeds)


def test_verdicts_follow_from_the_curves() -> None:
    forgetting = finding_of(made_up({1: 1.0, 4: 0.8, 7: 0.4}, 0.1, 0.3))
    assert forgetting.outcome == "holds" and len(forgetting.rows) == 2 * 2 * len(MODELS)
    assert [row[-2:] for row in forgetting.rows[:7:6]] == [(5, "never"), ("never", "never")]
    remembering = finding_of(made_up(dict.fromkeys(TINY.distances, 1.0), 0.99, 1.0))
    assert [check.passed for check in remembering.checks] == [False, True, False, False, True, False, True]
    assert all(row[-1] == "never" for row in remembering.rows)


def test_means_over_seeds_are_geometric_for_gradients_and_relative_to_the_first() -> None:
    pair = [
        ClauseResult(1, 0.0, {1: 0.5}, gradient_after={1: 2.0, 4: 2e-4}),
        ClauseResult(1, 0.0, {1: 0.7}, gradient_after={1: 1.0, 4: 1e-8}),
    ]
    assert mean_over_seeds(pair, "accuracy") == {1: pytest.approx(0.6)}
    assert mean_over_seeds(pair, "gradient_after") == {1: 1.0, 4: pytest.approx(1e-6)}


def test_the_study_chooses_rates_is_resumed_and_draws_its_charts(tmp_path: Path) -> None:
    setting = replace(TINY, rates=(0.02, 0.0001), updates=2)
    conditions = Conditions(folder=tmp_path / "runs")
    first = run(conditions, setting)
    assert len(list((tmp_path / "runs").iterdir())) == len(MODELS) * (2 + 1)
    assert run(conditions, setting) == first
    assert b"<svg" in draw(first.charts) and len(first.charts) == 4


def test_it_is_a_study_with_a_quick_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("transduce.experiments.long_clause.QUICK", replace(TINY, updates=1, updates_alone=1))
    finding = reproduce("long-clause", Conditions(quick=True, folder=tmp_path))
    assert finding.setting["seed"] == 1 and len(finding.rows) == 2 * len(MODELS)
