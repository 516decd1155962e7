"""`transduce.train` without a recipe: corpora as files or lists of strings, settings by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transduce
from transduce.errors import CannotCreate, DataError, SettingsError
from transduce.recipe import resume_recipe
from transduce.storage.manifest import sha256

SOURCES = [f"{a} {b}" for a in "abcde" for b in "abcde"] * 4
TARGETS = [" ".join(reversed(source.split())) for source in SOURCES]
TINY: dict[str, Any] = {
    "updates": 2,
    "batch_tokens": 101,
    "threads": 1,
    "model": {"preset": "small", "model_dim": 14, "num_heads": 2, "ffn_dim": 19, "num_layers": 1},
    "tokenizer": {"kind": "word"},
    "tune_search": False,
}


def test_lists_train_the_same_model_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("".join(f"{line}\n" for line in SOURCES))
    Path("b.txt").write_text("".join(f"{line}\n" for line in TARGETS))
    dev = (SOURCES[:7], TARGETS[:7])
    lists = transduce.train(source=iter(SOURCES), target=TARGETS, validation=dev, output="lists", **TINY)
    Path("dev.jsonl").write_bytes((lists / "texts/validation.jsonl").read_bytes())
    files = transduce.train(source=Path("a.txt"), target="b.txt", validation="dev.jsonl", output="files", **TINY)
    weights = "model/model.safetensors"
    assert sha256(lists / weights) == sha256(files / weights)
    rows = [json.loads(line) for line in (lists / "texts/train.jsonl").read_text().splitlines()]
    assert [(row["source"], row["target"]) for row in rows] == list(zip(SOURCES, TARGETS, strict=True))
    saved = resume_recipe(lists)
    assert saved.training.updates == 2 and saved.model.model_dim == 14 and saved.tokenizer.kind == "word"  # type: ignore[attr-defined]
    again = transduce.train(lists / "recipe.toml", "again")
    assert sha256(again / weights) == sha256(lists / weights)
    with pytest.raises(CannotCreate, match="already holds a run"):
        transduce.train(source=SOURCES, target=TARGETS, output="lists", **TINY)


def test_documents_train_a_language_model(tmp_path: Path) -> None:
    small: dict[str, Any] = {"preset": "gpt_mini", "updates": 2, "batch_tokens": 101, "threads": 1}
    small["model"] = {"model_dim": 14, "num_heads": 2, "ffn_dim": 19, "num_layers": 1}
    run = transduce.train(text=["a b c\nd e", "f g h"] * 40, output=tmp_path / "run", data={"block_size": 11}, **small)
    assert isinstance(transduce.load(run), transduce.Generator)
    assert (run / "texts/train.txt").read_text().startswith("a b c\nd e\n\nf g h\n\n")


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"source": SOURCES}, SettingsError, "target is missing"),
        ({"source": SOURCES, "target": TARGETS[1:]}, DataError, "100 texts, target has 99"),
        ({"source": SOURCES, "target": "b.txt"}, TypeError, "both be files"),
        ({"source": [1, 2], "target": ["a", "b"]}, TypeError, r"source\[0\] must be a string, not int"),
        ({"source": ["a", "b\nc"], "target": ["a", "b"]}, DataError, r"source\[1\] contains a line break"),
        ({"source": ["a", "b\ud800"], "target": ["a", "b"]}, DataError, r"source\[1\]: .* lone surrogate"),
        ({"source": SOURCES, "target": TARGETS, "updates": 1, "epochs": 1.0}, SettingsError, "updates and epochs"),
        ({"source": "one text\nanother", "target": "b.txt"}, TypeError, "splitlines"),
        ({"source": 3, "target": "b.txt"}, TypeError, "not int"),
        ({"path": [("a", "b")]}, TypeError, r"path must be a file, not list; .*source="),
        ({"source": SOURCES, "target": TARGETS, "validation": 0.1}, TypeError, "validation must be"),
        ({"source": SOURCES, "target": TARGETS, "path": "c.tsv"}, SettingsError, "once"),
        ({"source": SOURCES, "target": TARGETS, "lerning_rate": 1.0}, SettingsError, "did you mean 'learning_rate'"),
        ({"source": SOURCES, "target": TARGETS, "num_train_epochs": 2}, SettingsError, "called epochs"),
        ({"source": SOURCES, "target": TARGETS, "num_layers": 2}, SettingsError, r"model=\{'num_layers': 2\}"),
        ({"source": SOURCES, "target": TARGETS, "model": "small"}, TypeError, "dict"),
        ({"source": SOURCES, "target": TARGETS, "updates": -1}, SettingsError, "updates = -1"),
        ({"source": SOURCES, "target": TARGETS, "callbacks": print}, TypeError, "list of callbacks"),
        ({"source": SOURCES, "target": TARGETS, "callbacks": [print]}, TypeError, r"transduce\.Callback"),
        ({"source": SOURCES, "target": TARGETS, "callbacks": [transduce.Callback]}, TypeError, r"Callback\(\)"),
        ({"text": ["a", "b\n \nc"]}, DataError, r"text\[1\] has a blank line"),
        ({}, SettingsError, "source and target, path, text"),
        ({"source": "nowhere.txt", "target": "b.txt"}, transduce.errors.MissingInput, "nowhere.txt"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    given: dict[str, Any], kind: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.txt").write_text("a\n")
    with pytest.raises(kind, match=words):
        transduce.train(output="runs/x", **given)
    assert not Path("runs").exists()


def test_a_complete_recipe_takes_no_settings(tmp_path: Path) -> None:
    from tests.unit.training.example import recipe

    calls: list[Callable[[], Path]] = [
        lambda: transduce.train(recipe(), tmp_path / "x", updates=3),
        lambda: transduce.train(output=tmp_path / "x", resume=True, updates=3),
        lambda: transduce.train(recipe()),
    ]
    for call, words in zip(calls, (r"training\.updates", r"training\.updates", "output="), strict=True):
        with pytest.raises(SettingsError, match=words):
            call()
