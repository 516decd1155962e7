"""`transduce train`: a recipe, two files, or a prepared corpus into a run folder."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

import transduce
from tests.unit.cli.example import snapshot
from transduce.cli.main import run
from transduce.storage.journal import read_journal


def test_a_run_folder_holds_what_it_should(trained: Path) -> None:
    assert {path.name for path in trained.iterdir()} == {
        ".lock",
        "checkpoints",
        "data",
        "journal.jsonl",
        "model",
        "recipe.toml",
        "timing.jsonl",
    }
    assert {path.name for path in (trained / "model").iterdir()} == {
        "README.md",
        "config.json",
        "manifest.json",
        "model.safetensors",
        "tokenizer.json",
    }
    events = [event["event"] for event in read_journal(trained / "journal.jsonl")]
    assert events[0] == "began" and events[-1] == "final" and events.count("validation") == 2


def test_what_goes_where_while_it_trains(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--recipe", "recipe.toml", "--set", "training.updates=3", "--output", "new/run"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "new/run\n"
    lines = shown.err.splitlines()
    assert "3 updates" in lines[-5] and lines[-4].startswith("update 3: validation loss")
    assert lines[-2].startswith("note: the model is the checkpoint of update 3: validation loss")
    assert lines[-1] == "done: new/run"
    assert not {"\x1b", "\r"} & set(shown.err)
    assert transduce.load("new/run")("a b") is not None


def test_the_same_recipe_gives_the_same_bytes(trained: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--recipe", "recipe.toml", "--output", "again"]) == 0
    assert {**snapshot(place / "again"), "timing.jsonl": ""} == {**snapshot(trained), "timing.jsonl": ""}


def test_the_saved_recipe_is_filled_in_and_gives_the_same_run(
    trained: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tomllib.loads((trained / "recipe.toml").read_text())
    assert tables["training"]["device"] == "cpu" and tables["model"]["dropout"] == 0.1
    assert run(["train", "--recipe", "run/recipe.toml", "--dry-run"]) == 0
    assert capsys.readouterr().out == (trained / "recipe.toml").read_text()
    assert not (place / "new").exists()


def test_two_files_and_nothing_else_are_enough(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--source", "a.txt", "--target", "b.txt", "--dry-run"]) == 0
    shown = capsys.readouterr()
    tables = tomllib.loads(shown.out)
    assert tables["data"]["train"] == {"source": "a.txt", "target": "b.txt", "format": "auto"}
    assert shown.err.startswith("chosen: 2 training pairs\n")
    assert all(line.startswith("chosen: ") for line in shown.err.splitlines())


def test_a_prepared_corpus_is_used_as_it_is(trained: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "--recipe", "recipe.toml", "--output", "corpus"]) == 0
    capsys.readouterr()
    assert run(["train", "--recipe", "recipe.toml", "--prepared", "corpus", "--output", "new"]) == 0
    assert "reading" not in capsys.readouterr().err
    assert (place / "new/data").resolve() == place / "corpus"
    for name in ("journal.jsonl", "model/model.safetensors"):
        assert (place / "new" / name).read_bytes() == (trained / name).read_bytes()


def test_a_recipe_from_a_pipe_is_read_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    os.write(write, (place / "recipe.toml").read_bytes())
    os.close(write)
    try:
        assert run(["train", "--recipe", f"/dev/fd/{read}", "--dry-run"]) == 0
    finally:
        os.close(read)
    shown = capsys.readouterr()
    assert tomllib.loads(shown.out)["model"]["model_dim"] == 16
    assert shown.err == ""


def test_samples_cannot_steer_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f'{{"source": "\\u001b[2J{row}", "target": "\\r{row}"}}\n' for row in "abcdefgh" * 9)
    (place / "x.jsonl").write_text(rows)
    corpus = ["--set", "data.train={path='x.jsonl'}", "--set", "data.validation={path='x.jsonl'}"]
    rules = ["--set", "data.leakage=keep", "--set", "data.duplicates=keep", "--set", "training.updates=2"]
    assert run(["train", "--recipe", "recipe.toml", *corpus, *rules, "--output", "new"]) == 0
    shown = capsys.readouterr().err
    assert not {"\x1b", "\r"} & set(shown)
    assert r"\x1b[2Ja  →" in shown and r"(reference: \ra)" in shown


def test_a_folder_that_holds_a_run_is_rejected_before_the_corpus_is_read(
    trained: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "--path", "missing.tsv", "--output", str(trained)]) == 73
    assert "already holds a run" in capsys.readouterr().err
