"""Making the model of a run that was stopped, and going on with it afterwards."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.unit.training.example import TABLES, Listener, StopAt, recipe
from transduce.config import merge
from transduce.errors import SettingsError
from transduce.inference.load import load_translator
from transduce.recipe import Recipe
from transduce.run import train
from transduce.storage.journal import read_journal
from transduce.storage.manifest import sha256
from transduce.training.interruption import Interrupted

WEIGHTS = "model/model.safetensors"


def stopped(wanted: Recipe, folder: Path, update: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a run and have it stopped at an update."""
    stop = StopAt(update=update)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr("transduce.run.catch_signals", lambda _: nullcontext(stop.interruption))
        train(wanted, folder, reporter=stop)


def test_a_stopped_run_becomes_a_model_and_can_go_on_as_if_it_never_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = recipe(training={"average_checkpoints": 2})
    train(wanted, tmp_path / "whole")
    stopped(wanted, tmp_path / "run", 12, monkeypatch)
    train(wanted, tmp_path / "run", resume=True, finish=True)
    message = read_journal(tmp_path / "run" / "journal.jsonl")[-1]
    assert message["event"] == "final" and set(message["updates"]) <= {5, 10, 12}
    assert load_translator(tmp_path / "run").translate(["a b"])
    early = sha256(tmp_path / "run" / WEIGHTS)
    train(wanted, tmp_path / "run", resume=True)
    assert sha256(tmp_path / "run" / WEIGHTS) == sha256(tmp_path / "whole" / WEIGHTS) != early
    journals = [(tmp_path / name / "journal.jsonl").read_bytes() for name in ("run", "whole")]
    assert journals[0] == journals[1]


def test_without_validation_pairs_the_newest_checkpoint_is_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = merge(TABLES, {"data": {"validation_fraction": 0.0}, "training": {"patience": 3}})
    del tables["data"]["validation"]
    wanted, listener = Recipe.from_tables(tables, "a test"), Listener()
    stopped(wanted, tmp_path / "run", 12, monkeypatch)
    train(wanted, tmp_path / "run", resume=True, finish=True, reporter=listener)
    assert "of update 12" in (tmp_path / "run" / "model" / "README.md").read_text()
    assert any("training.patience has no effect" in warning for warning in listener.warnings)


def test_a_run_without_a_checkpoint_has_nothing_to_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = recipe()
    monkeypatch.setattr("transduce.training.trainer.Trainer.run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run")
    with pytest.raises(SettingsError, match="has no checkpoint to make a model of"):
        train(wanted, tmp_path / "run", resume=True, finish=True)


def test_a_recipe_that_leaves_the_batch_to_us_goes_on_with_the_one_that_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = recipe(training={"batch_tokens": "auto", "updates": 4, "validate_every": 2})
    train(wanted, tmp_path / "whole")
    stopped(wanted, tmp_path / "run", 3, monkeypatch)
    train(wanted, tmp_path / "run", resume=True)
    assert sha256(tmp_path / "run" / WEIGHTS) == sha256(tmp_path / "whole" / WEIGHTS)
