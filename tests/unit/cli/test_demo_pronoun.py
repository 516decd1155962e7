"""`transduce demo pronoun` in its quick form: every part runs, files are written, a finished run is reused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.cli.example import complaint, snapshot
from transduce.cli.main import run
from transduce.experiments.pronoun import milestones
from transduce.experiments.pronoun_report import PronounReport, written_pronoun


def test_it_trains_examines_draws_and_compares_and_reuses_what_is_finished(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "pronoun", "--quick", "--seeds", "2", "--compare"]) == 0
    shown = capsys.readouterr().out
    assert "because it was too tired" in shown and "because it was too wide" in shown
    assert "always the animal" in shown and "in 2 seeds:" in shown and "RNN without attention" in shown
    folder = place / "runs/pronoun"
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["train_seconds"] > 0
    for name in ("pronoun_accuracy", "ablated_accuracy", "zeroed_accuracy", "head_attention"):
        assert 0.0 <= scores[name] <= 1.0
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == ["update-00000002", "update-00000004"]
    assert not (place / "runs/pronoun-seeds/seed-2/checkpoints").exists()
    assert len(scores["seeds"]) == 2 and sum(scores["solutions"].values()) == 2
    assert scores["lengths"]["Transformer"]["words"] == [0, 4, 8, 16, 32]
    for name in ("attention.png", "attention.svg", "lengths.png", "lengths.svg", "recipe.toml", "journal.jsonl"):
        assert (folder / name).is_file()
    report = PronounReport.from_json(json.loads((folder / "pronoun.json").read_text()))
    assert report.to_json() == json.loads((folder / "pronoun.json").read_text())
    assert run(["translate", "runs/pronoun", str(_input(place)), "--max-length", "3"]) == 0
    capsys.readouterr()
    assert run(["demo", "pronoun", "--quick"]) == 0
    shown = capsys.readouterr().out
    assert "trained before with the same settings" in shown and "in 2 seeds" not in shown
    assert json.loads((folder / "scores.json").read_text())["train_seconds"] == scores["train_seconds"]


def _input(place: Path) -> Path:
    path = place / "input.txt"
    path.write_text("The animal didn't cross the street because it was too tired\n")
    return path


def test_without_matplotlib_everything_else_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["demo", "pronoun", "--quick", "--language", "fr", "--output", "runs/fr"]) == 0
    shown = capsys.readouterr().out
    assert "French" in shown and "transduce[plot]" in shown
    assert (place / "runs/fr/scores.json").is_file() and not (place / "runs/fr/attention.png").exists()


def test_options_of_the_other_demo_and_other_folders_are_rejected(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--seeds", "3"]) == 2
    assert "--seeds" in complaint(capsys.readouterr())
    before = snapshot(place)
    assert run(["demo", "pronoun", "--quick", "--output", "run"]) == 73
    assert "run: " in complaint(capsys.readouterr())
    assert snapshot(place) == before


def test_the_checkpoints_that_stay_are_dense_at_first_and_end_with_the_last() -> None:
    assert milestones(range(50, 1001, 50), 8) == [50, 100, 150, 200, 300, 400, 650, 1000]
    assert milestones([2, 4], 8) == [2, 4]
    for count in range(1, 40):
        chosen = milestones(range(1, count + 1), 8)
        assert len(chosen) == min(count, 8) and chosen == sorted(set(chosen)) and chosen[-1] == count


def test_the_pronoun_is_the_word_after_because() -> None:
    assert written_pronoun("Das Tier überquerte die Straße nicht, weil es zu müde war", "de") == "es"
    assert written_pronoun("Weil sie zu breit war, überquerte das Tier die Straße nicht.", "de") == "sie"
    assert written_pronoun("L'animal n'a pas traversé la rue parce qu'elle était trop large", "fr") == "elle"
    assert written_pronoun("Das Tier überquerte die Straße nicht", "de") is None
    assert written_pronoun("Das Tier, weil die Straße", "de") is None
