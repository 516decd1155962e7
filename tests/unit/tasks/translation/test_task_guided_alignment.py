"""Guided alignment from recipe to model folder: exact, off where it is off, and of use."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import transduce
from tests.unit.training.example import Listener
from transduce.config import Table, merge
from transduce.errors import ModelFolderError, SettingsError
from transduce.inference.load import load_translator
from transduce.recipe import Recipe
from transduce.run import train
from transduce.storage.journal import read_journal
from transduce.storage.layout import JOURNAL
from transduce.storage.manifest import write_manifest
from transduce.tasks.catalog import prepare
from transduce.training.interruption import Interrupted
from transduce.training.reporter import Silent, Step

TABLES: Table = {
    "tokenizer": {"kind": "word", "min_frequency": 1, "joint": False},
    "model": {
        "model_dim": 16,
        "num_heads": 2,
        "ffn_dim": 19,
        "num_layers": 2,
        "dropout": 0.2,
        "norm": "pre",
        "tied_embeddings": "none",
    },
    "training": {
        "threads": 1,
        "batch_tokens": 211,
        "micro_batch_tokens": 53,
        "updates": 7,
        "learning_rate": 0.01,
        "schedule": "constant",
        "warmup": 3,
        "decode_examples": 0,
        "log_every": 1,
        "validate_every": 3,
    },
}


def pairs(count: int = 131, longest: int = 6) -> list[tuple[str, str, list[tuple[int, int]]]]:
    """Words s3 and t3 belong together; the target has them in reverse order."""
    draw, made = random.Random(1), []
    for _ in range(count):
        row = draw.sample(range(13), draw.randint(3, longest))
        links = [(len(row) - 1 - place, place) for place in range(len(row))]
        made.append((" ".join(f"s{word}" for word in row), " ".join(f"t{word}" for word in reversed(row)), links))
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, made = tmp_path_factory.mktemp("files"), pairs()
    names = {side: str(folder / f"train.{side}") for side in ("source", "target")}
    for place, name in enumerate(names.values()):
        Path(name).write_text("".join(f"{pair[place]}\n" for pair in made))
    return names


def recipe(files: dict[str, str], weight: float = 0.5, **changes: Table) -> Recipe:
    tables = merge(TABLES, {"data": {"train": files}, "training": {"guided_alignment": weight}})
    return Recipe.from_tables(merge(tables, changes), "a test")


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def events(run: Path, *kinds: str) -> list[Table]:
    """The lines of a run's journal of these kinds."""
    return [line for line in read_journal(run / JOURNAL) if line["event"] in kinds]


def same(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def guided(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe(files), tmp_path_factory.mktemp("guided") / "run")


def test_the_loss_has_a_second_part_and_the_model_folder_names_the_head(
    files: dict[str, str], guided: Path, tmp_path: Path
) -> None:
    plain = train(recipe(files, 0.0), tmp_path / "plain")
    losses = [events(run, "update")[0]["loss"] for run in (guided, plain)]
    assert losses[0] > losses[1] + 0.3  # some log 5 times one half
    notes = [json.loads((run / "model/config.json").read_text())["notes"] for run in (guided, plain)]
    assert notes[0]["alignment_heads"] == [[0, 0]] and "alignment_heads" not in notes[1]
    assert load_translator(guided).model.alignment_heads == ((0, 0),)


def test_without_a_weight_an_aligned_corpus_gives_the_same_model(files: dict[str, str], tmp_path: Path) -> None:
    plain = train(recipe(files, 0.0), tmp_path / "plain")
    listener = Listener()
    aligned = train(recipe(files, 0.0, data={"align": True}), tmp_path / "aligned", reporter=listener)
    assert same(plain, aligned)
    assert any("alignments of the corpus are not used" in message for message in listener.warnings)
    lines = [events(run, "update", "validation", "final") for run in (plain, aligned)]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_threads_change_nothing_and_micro_batches_the_rounding(
    files: dict[str, str], tmp_path: Path, precision: str
) -> None:
    base = {"precision": precision, "gradient_accumulation": 2, "updates": 3}
    one, two = (
        train(recipe(files, training={**base, "threads": threads}), tmp_path / f"threads {threads}")
        for threads in (1, 2)
    )
    assert same(one, two)
    whole = train(recipe(files, training={**base, "micro_batch_tokens": 999}), tmp_path / "whole")
    first = [events(run, "update")[0]["loss"] for run in (one, whole)]
    assert first[0] == pytest.approx(first[1], rel=1e-6 if precision == "float32" else 1e-2)


class StopAt(Silent):
    def step(self, step: Step) -> None:
        if step.update == 4:
            raise KeyboardInterrupt


def test_a_resumed_run_is_the_same_run(files: dict[str, str], guided: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        train(recipe(files), run, reporter=StopAt())
    train(output=run, resume=True)
    assert same(run, guided)


def test_given_alignments_are_part_of_the_fingerprint(files: dict[str, str], guided: Path, tmp_path: Path) -> None:
    alignment = tmp_path / "train.align"
    alignment.write_text("".join(" ".join(f"{s}-{t}" for s, t in links) + "\n" for *_, links in pairs()))
    given = train(recipe({**files, "alignment": str(alignment)}), tmp_path / "given")
    began = [events(run, "began")[0] for run in (given, guided)]
    assert began[0]["data"] != began[1]["data"]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"training": {"bpe_dropout": 0.1}}, "needs the tokens that were aligned, which bpe_dropout changes"),
        ({"training": {"compile": True}}, "compiled blocks do not support"),
        ({"data": {"train": {"text": "a.txt"}}, "model": {"name": "gpt"}}, "is for pairs, not for plain text"),
        (
            {"data": {"train": {"path": "a.tsv"}, "objective": "classify"}, "model": {"name": "bert"}},
            "is for translation",
        ),
    ],
)
def test_what_cannot_be_guided_is_rejected(tables: Table, message: str) -> None:
    base: Table = {"data": {"train": {"path": "a.tsv"}}, "training": {"guided_alignment": 0.05}}
    if "data" in tables:
        del base["data"]
    with pytest.raises(SettingsError, match=f"training.guided_alignment.*{message}"):
        Recipe.from_tables(merge(base, tables), "a test")


def test_a_model_without_cross_attention_is_rejected(files: dict[str, str], tmp_path: Path) -> None:
    model = {"name": "rnn", "embedding_dim": 7, "hidden_dim": 7, "attention": "none"}
    tables = {"data": {"train": files}, "training": {"guided_alignment": 0.1}, "model": model}
    with pytest.raises(SettingsError, match="guided_alignment needs cross-attention, and this rnn has none"):
        train(Recipe.from_tables(tables, "a test"), tmp_path / "run")


def test_a_corpus_that_was_prepared_without_alignments_is_rejected(files: dict[str, str], tmp_path: Path) -> None:
    plain = recipe(files, 0.0)
    prepare(plain.data, plain.tokenizer, tmp_path / "data")
    with pytest.raises(SettingsError, match=r"was prepared without alignments.*data.align=true"):
        train(recipe(files), tmp_path / "run", prepared=tmp_path / "data")
    prepare(recipe(files).data, plain.tokenizer, tmp_path / "data")
    train(recipe(files, training={"updates": 1}), tmp_path / "run", prepared=tmp_path / "data")


@pytest.mark.parametrize("heads", [[[5, 0]], [[0, 2]], [[0]], [[0, -1]], "0-0", [["a", 0]], []])
def test_a_model_folder_that_names_no_head_of_the_model_is_rejected(guided: Path, tmp_path: Path, heads: Any) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (guided / "model").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["notes"]["alignment_heads"] = heads
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").unlink()
    write_manifest(folder, "transduce model")
    with pytest.raises(ModelFolderError, match="alignment_heads"):
        transduce.load(folder)


def test_a_guided_model_aligns_words_better(files: dict[str, str], tmp_path: Path) -> None:
    settings: Table = {
        "training": {"updates": 50, "micro_batch_tokens": 211, "batch_tokens": 422, "validate_every": 120},
        "model": {"model_dim": 32, "ffn_dim": 32, "dropout": 0.0},
    }
    errors, made = [], pairs()
    for weight in (0.0, 0.3):
        run = train(recipe(files, weight, **settings), tmp_path / f"run {weight}")
        found = load_translator(run).align([(source, target) for source, target, _ in made])
        right = sum(link in (one or []) for one, (*_, links) in zip(found, made, strict=True) for link in links)
        errors.append(1 - right / sum(len(links) for *_, links in made))

    assert errors[1] < 0.2 < errors[0] and errors[1] < errors[0] / 2
