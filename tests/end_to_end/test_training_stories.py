"""A reader of stories under the one trainer: answers that are words, batches of all lengths, plain gradient descent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.babi_corpus import PLACES, simple_stories
from tests.unit.training.example import StopAt, run, same, snapshot
from transduce.config import Table
from transduce.data.order import START
from transduce.data.prepared import Prepared
from transduce.inference.load import load_text_encoder
from transduce.model_folder import load_model
from transduce.models.ancestors.memory_network import MemoryNetworkConfig
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.recipe import Recipe, resume_recipe
from transduce.run import train
from transduce.tasks.catalog import load_prepared, prepare
from transduce.training.interruption import Interrupted
from transduce.training.trainer import Trainer

LIST = "milk,apple"
"""An answer that is no word of its story."""
ASKED = f"1 Anna took the milk.\n2 Anna took the apple.\n3 What is Anna carrying? \t{LIST}\n"
TABLES: Table = {
    "data": {"objective": "classify", "max_length": 120, "validation_fraction": 0.1, "duplicates": "keep"},
    "tokenizer": {"kind": "word", "min_frequency": 1, "lowercase": True},
    "model": {"preset": "memn2n", "model_dim": 7, "max_facts": 11},
    "training": {
        "threads": 1,
        "batch_tokens": 2048,
        "bucket_size": 13,
        "updates": 11,
        "optimizer": "sgd",
        "schedule": "constant",
        "learning_rate": 0.1,
        "warmup": 3,
        "log_every": 3,
        "validate_every": 5,
        "label_smoothing": 0.0,
    },
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Prepared]:
    folder = tmp_path_factory.mktemp("stories")
    (folder / "train").write_text("\n".join(simple_stories(30, seed=1)) + "\n" + ASKED)
    data = {**TABLES["data"], "train": {"path": str(folder / "train"), "format": "babi"}}
    recipe = Recipe.from_tables({**TABLES, "data": data}, "a test")
    prepare(recipe.data, recipe.tokenizer, folder / "data")
    return recipe, load_prepared(folder / "data")


def trainer(corpus: tuple[Recipe, Prepared], folder: Path, **changes: Any) -> Trainer:
    recipe, prepared = corpus[0].with_labels(corpus[1]), corpus[1]
    size = prepared.source_tokenizer.size
    model = build(recipe.model, VocabularySizes(size, size), seed=1)
    return Trainer(model, recipe.task, prepared, recipe.training.but(**changes), folder, {"recipe": "of a test"})


def test_the_data_says_which_word_each_answer_is(corpus: tuple[Recipe, Prepared]) -> None:
    recipe, prepared = corpus
    filled = recipe.with_labels(prepared).model
    assert isinstance(filled, MemoryNetworkConfig)
    assert prepared.report.labels == tuple(sorted([*PLACES, LIST])) and filled.num_labels == len(PLACES) + 1
    pieces = [None if t == -1 else prepared.source_tokenizer.pieces([t])[0] for t in filled.label_tokens]
    assert pieces == [None if label == LIST else label for label in prepared.report.labels]


def test_a_run_with_gradient_descent_that_is_stopped_and_resumed_is_the_same_bit_by_bit(
    corpus: tuple[Recipe, Prepared], tmp_path: Path
) -> None:
    whole = trainer(corpus, tmp_path / "whole")
    run(whole)
    listener = StopAt(update=7)
    with pytest.raises(Interrupted):
        run(trainer(corpus, tmp_path / "parts"), listener, listener.interruption)
    last = trainer(corpus, tmp_path / "parts")
    last.resume(listener)
    run(last)
    assert same(snapshot(last), snapshot(whole))


def test_slices_change_nothing_but_rounding(corpus: tuple[Recipe, Prepared], tmp_path: Path) -> None:
    losses = [
        [step.loss for step in run(trainer(corpus, tmp_path / str(tokens), micro_batch_tokens=tokens)).steps]
        for tokens in (2048, 131)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_small_pool_mixes_lengths_and_a_large_one_does_not(corpus: tuple[Recipe, Prepared]) -> None:
    recipe, prepared = corpus
    model, spread = (
        build(recipe.with_labels(prepared).model, VocabularySizes(*[prepared.source_tokenizer.size] * 2)),
        {},
    )
    for pool in (13, None):
        training = recipe.training.but(bucket_size=pool, batch_tokens=13 * 60)
        batches = recipe.task.batch_source(prepared, training, model).starting(START)
        lengths = [batch.allowed.sum(1).float() for _, (_, batch) in zip(range(8), batches, strict=False)]
        spread[pool] = sum(float(some.max() - some.min()) for some in lengths) / 8
    assert spread[13] > 20 > 10 > spread[None]


def test_a_finished_run_says_all_that_is_needed_to_answer_and_can_be_resumed(
    corpus: tuple[Recipe, Prepared], tmp_path: Path
) -> None:
    recipe, prepared = corpus
    folder = train(recipe, tmp_path / "run", prepared=prepared.folder)
    contents = load_model(folder)
    assert contents.config == recipe.with_labels(prepared).model
    before = (folder / "model" / "model.safetensors").read_bytes()
    train(resume_recipe(folder), folder, resume=True)
    assert (folder / "model" / "model.safetensors").read_bytes() == before
    message = load_text_encoder(folder).predict(["Anna went to the attic. Where is Anna?"])
    assert message[0].label in (*PLACES, LIST)  # type: ignore[union-attr]
