"""A run that is asked for more updates than it was begun with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training.example import Listener, recipe
from transduce.cli.main import run as main
from transduce.errors import ModelFolderError, SettingsError
from transduce.recipe import resume_recipe
from transduce.run import train
from transduce.storage.journal import read_journal
from transduce.storage.manifest import sha256

WEIGHTS = "model/model.safetensors"


def test_a_run_made_longer_is_the_run_that_was_that_long_from_the_beginning(tmp_path: Path) -> None:
    train(recipe(), tmp_path / "whole")
    train(recipe(training={"updates": 10}), tmp_path / "run")
    early = sha256(tmp_path / "run" / WEIGHTS)
    listener = Listener()
    train(recipe(), tmp_path / "run", resume=True, reporter=listener)
    assert [step.update for step in listener.steps] == list(range(11, 18))
    assert [line for line in listener.warnings if not line.startswith("the model is")] == []
    assert sha256(tmp_path / "run" / WEIGHTS) == sha256(tmp_path / "whole" / WEIGHTS) != early
    lines, whole = (read_journal(tmp_path / name / "journal.jsonl") for name in ("run", "whole"))
    assert {"event": "longer", "update": 10, "before": 10, "now": 17} in lines
    assert [line for line in lines if line["event"] != "longer"][1:] == whole[1:]
    train(recipe(), tmp_path / "run", resume=True)  # it is a run of 17 updates now


def test_so_it_is_where_it_had_ended_between_two_checkpoints(tmp_path: Path) -> None:
    """At 12 it was validated and saved because it was over; a run of 17 does neither there."""
    train(recipe(training={"average_checkpoints": 2}), tmp_path / "whole")
    train(recipe(training={"average_checkpoints": 2, "updates": 12}), tmp_path / "run")
    train(recipe(training={"average_checkpoints": 2}), tmp_path / "run", resume=True)
    assert sha256(tmp_path / "run" / WEIGHTS) == sha256(tmp_path / "whole" / WEIGHTS)
    lines, whole = (read_journal(tmp_path / name / "journal.jsonl") for name in ("run", "whole"))
    assert {"event": "longer", "update": 10, "before": 12, "now": 17} in lines
    assert [line for line in lines if line["event"] != "longer"][1:] == whole[1:]


def test_a_run_that_ended_by_its_patience_is_not_made_longer(tmp_path: Path) -> None:
    still = {"learning_rate": 1e-30, "validate_every": 2, "patience": 2}
    train(recipe(training=still), tmp_path / "run")
    before = (tmp_path / "run" / "recipe.toml").read_bytes()
    with pytest.raises(SettingsError, match=r"ended by training\.patience, after 2 validations"):
        train(recipe(training={**still, "updates": 30}), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "recipe.toml").read_bytes() == before


def test_a_schedule_that_ended_with_the_run_jumps_with_a_warning(tmp_path: Path) -> None:
    train(recipe(training={"updates": 10, "schedule": "cosine"}), tmp_path / "run")
    listener = Listener()
    train(recipe(training={"schedule": "cosine"}), tmp_path / "run", resume=True, reporter=listener)
    assert any("ended at update 10 and now ends at 17" in warning for warning in listener.warnings)


def test_what_was_chosen_when_it_began_stays_in_a_longer_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fraction of warmup is one of the first number of updates, and the precision that of the first machine."""
    given = recipe(training={"updates": 10, "warmup": 0.5, "device": "cpu"})
    monkeypatch.setattr("transduce.recipe.choose_precision", lambda *_: ("bfloat16", "a test"))
    train(given, tmp_path / "run")
    monkeypatch.undo()
    train(given.but_training(updates=17), tmp_path / "run", resume=True)
    saved = resume_recipe(tmp_path / "run").training
    assert (saved.warmup, saved.precision, saved.updates) == (5, "bfloat16", 17)


def test_nothing_else_may_change_and_no_run_becomes_shorter(tmp_path: Path) -> None:
    train(recipe(training={"updates": 10}), tmp_path / "run")
    with pytest.raises(SettingsError, match="is a run of 10 updates, which can be extended but not shortened"):
        train(recipe(training={"updates": 9}), tmp_path / "run", resume=True)
    with pytest.raises(SettingsError, match="was started with another recipe"):
        train(recipe(training={"updates": 12, "max_grad_norm": 0.5}), tmp_path / "run", resume=True)
    path = tmp_path / "run" / "recipe.toml"
    path.write_text(path.read_text().replace("updates = 10", "updates = 12").replace("warmup = 5", "warmup = 6"))
    with pytest.raises(ModelFolderError, match=r"saved with training\.warmup 5, now it is 6"):
        train(recipe(training={"updates": 12, "warmup": 6}), tmp_path / "run", resume=True)


def test_the_command_asks_for_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = tmp_path / "run", tmp_path / "recipe.toml"
    path.write_text(recipe().to_toml())
    assert main(["train", "--recipe", str(path), "--updates", "10", "--output", str(run)]) == 0
    assert main(["train", "--resume", str(run), "--updates", "9"]) == 2
    assert "extended but not shortened" in capsys.readouterr().err
    assert main(["train", "--finish", str(run), "--updates", "12"]) == 2
    assert "--finish with no other option" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--updates", "12", "--batch-tokens", "50"]) == 2
    assert "keeps its own recipe" in capsys.readouterr().err
    assert main(["train", "--resume", str(run)]) == 0
    assert "already finished" in (printed := capsys.readouterr().err) and "--updates N with N above 10" in printed
    assert main(["train", "--resume", str(run), "--updates", "12"]) == 0
    assert "resumed at update 11" in capsys.readouterr().err
    assert main(["report", str(run), "--output", str(tmp_path / "page.html")]) == 0
    assert main(["train", "--finish", str(run)]) == 0
    assert main(["report", str(run), "--output", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.count("12 of 12 updates, finished") == 2


def test_a_run_whose_journal_is_gone_goes_on_without_it(tmp_path: Path) -> None:
    for name in ("whole", "run"):
        train(recipe(training={"updates": 10}), tmp_path / name)
    (tmp_path / "run" / "journal.jsonl").unlink()
    listener = Listener()
    train(recipe(), tmp_path / "run", resume=True, reporter=listener)
    train(recipe(), tmp_path / "whole", resume=True)
    assert any("is missing" in message and "from update 10" in message for message in listener.warnings)
    assert sha256(tmp_path / "run" / WEIGHTS) == sha256(tmp_path / "whole" / WEIGHTS)
    assert [line["event"] for line in read_journal(tmp_path / "run" / "journal.jsonl")][:2] == ["longer", "update"]
