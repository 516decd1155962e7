"""Epochs and time budgets become numbers of updates, which are saved with the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training.example import Listener, recipe
from transduce.errors import SettingsError
from transduce.recipe import resume_recipe
from transduce.run import train
from transduce.storage.journal import read_journal
from transduce.storage.manifest import sha256
from transduce.training import budget
from transduce.training.budget import Speed, seconds_of
from transduce.training.config import TrainingConfig

WEIGHTS = "model/model.safetensors"


def test_times() -> None:
    assert [seconds_of(time) for time in ("90s", "20m", "1.5h")] == [90.0, 1200.0, 5400.0]
    for wrong in ("20", "m", "20 minutes", "-1m"):
        with pytest.raises(SettingsError, match=r"time_budget = .* a number with a unit, such as 90s"):
            TrainingConfig.from_table({"time_budget": wrong}, "a test")


def test_a_budget_is_time_for_updates_and_for_validation() -> None:
    config = TrainingConfig(time_budget="100s", validate_every=0.1, tune_search=True)
    assert Speed(0.5).updates_within(config, elapsed=20.0) == 155  # 97 % of 80 seconds
    assert Speed(0.5, 1.0, 0.5).updates_within(config, elapsed=20.0) == 111  # ten validations, two at the end, search
    assert Speed(0.5).updates_within(config, elapsed=20.0, ranks=2) == 310
    assert Speed(0.5, 30.0).updates_within(config, elapsed=20.0) == 77  # half of the time at least
    with pytest.raises(SettingsError, match="0 updates would be left"):
        Speed(0.5).updates_within(config, elapsed=120.0)


@pytest.mark.parametrize(("updates", "expected"), [(100, "58 seconds"), (1000, "9 minutes"), (100_000, "14.3 hours")])
def test_a_duration_includes_validation(updates: int, expected: str) -> None:
    assert Speed(0.5, 0.5).duration(TrainingConfig(updates=updates, validate_every=0.1)) == f"about {expected}"


def test_epochs_become_updates_that_are_trained(tmp_path: Path) -> None:
    changes = {"epochs": 2.0, "warmup": 0.25, "validate_every": 0.5, "patience": 0}
    listener = Listener()
    run = train(recipe(training=changes), tmp_path / "run", reporter=listener)
    saved = resume_recipe(run).training
    per_epoch = listener.plans[0].updates_per_epoch
    assert saved.updates == len(listener.steps) == round(2 * per_epoch)
    assert {step.epoch for step in listener.steps} == {0, 1}
    assert (saved.epochs, saved.warmup) == (None, round(0.25 * saved.updates))
    assert any("are 2.0 epochs, about" in warning for warning in listener.warnings)
    validated = [event["update"] for event in read_journal(run / "journal.jsonl") if event["event"] == "validation"]
    assert validated == [saved.validate_every, saved.updates]


def test_trial_updates_leave_no_trace(tmp_path: Path) -> None:
    budgeted = train(recipe(training={"epochs": 1.0}), tmp_path / "budgeted")
    updates = resume_recipe(budgeted).training.updates
    plain = train(recipe(training={"updates": updates}), tmp_path / "plain")
    assert sha256(budgeted / WEIGHTS) == sha256(plain / WEIGHTS)
    assert (budgeted / "journal.jsonl").read_bytes()[300:] == (plain / "journal.jsonl").read_bytes()[300:]


def test_a_time_budget_is_saved_as_updates_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.run_setup.measure_speed", lambda *_: Speed(2.0))
    given = recipe(training={"time_budget": "60s"})
    train(given, tmp_path / "run")
    saved = resume_recipe(tmp_path / "run").training
    assert saved.time_budget is None and 20 <= saved.updates <= 29  # preparation takes some of the time
    train(given, tmp_path / "run", resume=True)  # nothing is left to do, and nothing is measured again
    assert resume_recipe(tmp_path / "run").training == saved


def test_the_trial_measures_real_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "ENOUGH_SECONDS", 0.0)
    train(recipe(training={"time_budget": "3s"}), tmp_path / "run")
    assert resume_recipe(tmp_path / "run").training.updates >= budget.SMALLEST_PLAN


def test_both_at_once_are_rejected() -> None:
    with pytest.raises(SettingsError, match="exclude each other"):
        TrainingConfig.from_table({"epochs": 2, "time_budget": "2m"}, "a test")
