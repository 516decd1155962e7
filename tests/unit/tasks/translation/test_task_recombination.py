"""Recombination from recipe to run: exact when resumed and with any number of threads; rejected where it cannot be."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.unit.tasks.translation.test_task_guided_alignment import TABLES, StopAt, events, same
from transduce.config import Table, merge
from transduce.data.order import START
from transduce.data.store import PairStore
from transduce.errors import SettingsError
from transduce.recipe import Recipe
from transduce.run import train
from transduce.tasks.catalog import load_prepared, prepare
from transduce.training.interruption import Interrupted


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Words of single letters, s3 and t3 for each, in the same order."""
    folder, draw = tmp_path_factory.mktemp("files"), random.Random(1)
    rows = [[draw.randrange(7) for _ in range(draw.randint(3, 6))] for _ in range(131)]
    names = {side: str(folder / f"train.{side}") for side in ("source", "target")}
    for side, name in names.items():
        Path(name).write_text("".join(" ".join(f"{side[0]}{number}" for number in row) + "\n" for row in rows))
    return names


def recipe(files: dict[str, str], probability: float = 0.5, **changes: Table) -> Recipe:
    tables = merge(TABLES, {"data": {"train": files}, "training": {"recombination": probability}})
    return Recipe.from_tables(merge(tables, changes), "a test")


@pytest.fixture(scope="module")
def recombined(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe(files), tmp_path_factory.mktemp("recombined") / "run")


def test_the_batches_of_an_epoch_have_new_pairs_that_are_spelled_right(files: dict[str, str], tmp_path: Path) -> None:
    made = recipe(files, training={"guided_alignment": 0.5})
    prepare(made.data, made.tokenizer, tmp_path / "data")
    corpus = load_prepared(tmp_path / "data")
    known, found = {*corpus.train_as(PairStore).texts()}, set()
    model = SimpleNamespace(device=torch.device("cpu"))
    for after, batch in made.task.batch_source(corpus, made.training, model).starting(START):  # type: ignore[arg-type]
        assert batch.guide is not None and batch.guide.sum() > 0
        for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
            found.add((corpus.source_tokenizer.decode(source), corpus.target_tokenizer.decode(target)))
        if after.epoch == 1:
            break
    assert all(source.replace("s", "t") == target for source, target in found)
    assert 20 < len(found - known) < len(found)


def test_a_resumed_run_is_the_same_run(files: dict[str, str], recombined: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        train(recipe(files), run, reporter=StopAt())
    train(output=run, resume=True)
    assert same(run, recombined)
    two = train(recipe(files, training={"threads": 2}), tmp_path / "threads")
    assert same(two, recombined)
    plain = train(recipe(files, 0.0), tmp_path / "plain")
    assert events(plain, "update")[0]["loss"] != events(recombined, "update")[0]["loss"]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"training": {"bpe_dropout": 0.1}}, "needs the tokens that were aligned, which bpe_dropout changes"),
        ({"data": {"train": {"text": "a.txt"}}, "model": {"name": "gpt"}}, "is for pairs, not for plain text"),
        (
            {"data": {"train": {"path": "a.tsv"}, "objective": "classify"}, "model": {"name": "bert"}},
            "is for translation",
        ),
    ],
)
def test_what_cannot_be_recombined_is_rejected(tables: Table, message: str) -> None:
    base: Table = {"data": {"train": {"path": "a.tsv"}}, "training": {"recombination": 0.25}}
    if "data" in tables:
        del base["data"]
    with pytest.raises(SettingsError, match=f"training.recombination.*{message}"):
        Recipe.from_tables(merge(base, tables), "a test")


def test_a_corpus_that_was_prepared_without_alignments_is_rejected(files: dict[str, str], tmp_path: Path) -> None:
    plain = recipe(files, 0.0)
    prepare(plain.data, plain.tokenizer, tmp_path / "data")
    with pytest.raises(SettingsError, match=r"without alignments, which training.recombination needs.*data.align=true"):
        train(recipe(files), tmp_path / "run", prepared=tmp_path / "data")
