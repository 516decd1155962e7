"""Table 2 in small: equal operations for every system, the ranking, and the verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from transduce.experiments import table_2
from transduce.experiments import trials as module
from transduce.experiments.finding import Conditions
from transduce.experiments.study_corpus import generate_corpus
from transduce.experiments.table_2 import QUICK, SYSTEMS, TOLERANCE, best_of, close_systems, ranking, run, trial_of
from transduce.experiments.trials import Measured, TrialResult, Trials

SMALL = replace(QUICK, vocabulary=600, pairs=100, held_out=4, flops=1e10)
RESULT = TrialResult(1, 1, 1.0, 1.0, 2.0, ((1, 5.0),), ())


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTED_PAIRS", 2)  # counting recurrent models takes most of the time


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    folder = tmp_path_factory.mktemp("study")
    tokenizer = {"kind": "bpe", "vocab_size": SMALL.vocabulary, "joint": True}
    return Trials(generate_corpus(folder, SMALL.pairs, SMALL.held_out), tokenizer, Conditions(folder=folder))


def test_every_system_gets_the_same_operations(trials: Trials) -> None:
    for system in SYSTEMS[::2]:
        trial = trial_of(system, SMALL, trials)
        counted = trial.training["updates"] * trials.flops_per_update(trial)
        assert counted == pytest.approx(SMALL.flops, rel=TOLERANCE / 2), system.name


def test_equal_translations_are_close_and_get_more_seeds(trials: Trials) -> None:
    references = tuple(reference for [reference] in trials.evaluated.references)
    good, bad = replace(RESULT, translations=references), replace(RESULT, translations=("x",) * len(references))
    measured = {
        system: Measured((result,), trials._interval((result,)), tuple(trials._scores((result,))))
        for system, result in zip(SYSTEMS[:3], (bad, good, good), strict=True)
    }
    assert ranking(measured)[-1] is SYSTEMS[0]
    assert set(close_systems(measured, trials)) == {SYSTEMS[1], SYSTEMS[2]}


def test_a_kind_is_represented_by_its_best_system_on_validation_pairs() -> None:
    base, big = (replace(RESULT, curve=((1, score),)) for score in (3.0, 2.0))
    found = [Measured((result,), None, ()) for result in (base, big)]  # type: ignore[arg-type]
    assert best_of("transformer", dict(zip(SYSTEMS[:2], found, strict=True))) is SYSTEMS[0]


def test_the_tiniest_study_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {system.kind: system for system in reversed(SYSTEMS) if system.name != "Extended Neural GPU"}
    monkeypatch.setattr(table_2, "SYSTEMS", tuple(kinds.values()))
    found = run(Conditions(folder=tmp_path), replace(SMALL, flops=1e7, decoded=2, batch_tokens=32))
    assert {row[0] for row in found.rows} == {system.name for system in kinds.values()}
    assert "operations differ" in found.checks[0].statement and len(found.checks) == 7
    assert all(len(series.x) >= 5 for series in found.charts[0].series)
