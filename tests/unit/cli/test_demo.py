"""`transduce demo` on a dictionary of a few words, and what it may and may not replace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.example import complaint, snapshot
from transduce.cli.main import run
from transduce.experiments import demo
from transduce.text.corpus import CorpusFiles

WORDS = {f"{a}{b}": f"{a.upper()} {b.upper()}" for a in "abcdefgh" for b in "ijklmnop"}


def small_corpus(folder: Path) -> dict[str, CorpusFiles]:
    """Write the words as the demo's corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{word}\t{spoken}\n" for word, spoken in WORDS.items()]
    for name, part in {"train": lines[16:], "validation": lines[:8], "test": lines[8:16]}.items():
        (folder / f"{name}.tsv").write_text("".join(part))
    return {name: CorpusFiles(path=str(folder / f"{name}.tsv")) for name in ("train", "validation", "test")}


@pytest.fixture
def small_demo(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train for three updates only."""
    settings = {
        **demo.SETTINGS,
        "model": {**demo.SETTINGS["model"], "model_dim": 8, "ffn_dim": 16, "num_heads": 2, "num_layers": 1},
        "training": {**demo.SETTINGS["training"], "updates": 3, "warmup": 1, "threads": 1},
    }
    monkeypatch.setattr(demo, "SETTINGS", settings)
    monkeypatch.setattr(demo, "write_demo_corpus", small_corpus)
    return place


def test_it_learns_tests_draws_and_may_be_run_again(small_demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(["demo", "--output", "runs/demo"]) == 0
        shown = capsys.readouterr().out
        assert "8 words the model has never seen" in shown and "next steps" in shown
    scores = json.loads((small_demo / "runs/demo/scores.json").read_text())
    assert 0.0 <= scores["word_accuracy"] <= 1.0 and scores["phoneme_error_rate"] >= 0 and scores["train_seconds"] > 0
    assert (small_demo / "runs/demo/attention.png").exists() and (small_demo / "runs/demo/attention.html").exists()


def test_a_run_of_one_s_own_is_never_removed(small_demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(small_demo)
    assert run(["demo", "--output", "run"]) == 73
    assert "run: " in complaint(capsys.readouterr())
    assert snapshot(small_demo) == before
