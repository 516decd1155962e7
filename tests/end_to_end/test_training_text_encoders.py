"""Readers under the one trainer: exact resuming, slices and threads, masks that are drawn anew, and what is learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training.example import StopAt, run, same, snapshot
from transduce.config import Table, merge
from transduce.data.order import START
from transduce.data.prepared import Prepared
from transduce.errors import SettingsError
from transduce.inference.text_encoder import TextEncoder
from transduce.model_folder import load_model
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.recipe import Recipe, read_recipe
from transduce.run import train
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.text_encoding.evaluation import score_encoder
from transduce.training.interruption import Interrupted
from transduce.training.task import BatchSource
from transduce.training.trainer import Trainer

GOOD, BAD = ("fine", "great", "lovely"), ("awful", "poor", "dull")
TABLES: Table = {
    "data": {"max_length": 16, "validation_fraction": 0.1},
    "tokenizer": {"kind": "wordpiece", "vocab_size": 150, "min_frequency": 1},
    "model": {"name": "bert", "model_dim": 14, "num_heads": 2, "ffn_dim": 19, "num_layers": 1, "max_positions": 17},
    "training": {
        "threads": 1,
        "batch_tokens": 101,
        "updates": 11,
        "optimizer": "adamw",
        "schedule": "constant",
        "learning_rate": 0.01,
        "warmup": 3,
        "log_every": 3,
        "validate_every": 5,
        "label_smoothing": 0.1,
    },
}


def text(task: str) -> str:
    if task == "classify":
        return "".join(f"the film was {(GOOD, BAD)[n % 2][n % 3]} {n % 17}\t{'+-'[n % 2]}\n" for n in range(90))
    if task == "tag":
        sentences = [f"Anna{n % 7} B-PER\nsees O\n{GOOD[n % 3]} O\nRome{n % 5} B-LOC\n" for n in range(70)]
        return "\n".join(sentences)
    if task == "answer":
        lines = []
        for n in range(70):
            context = f"Anna{n % 11} lives in Rome{n % 13} ."
            answer = {"text": f"Rome{n % 13}", "answer_start": context.index("Rome")}
            lines.append(json.dumps({"question": "where ?", "context": context, "answers": [answer]}))
        return "\n".join(lines)
    return "".join(f"the film was {GOOD[n % 3]}\nthe play is {BAD[n % 3]} {n % 5}\n\n" for n in range(60))


def recipe_of(folder: Path, task: str, **changes: Table) -> Recipe:
    path = folder / f"{task}{'.tsv' if task == 'classify' else '.jsonl' if task == 'answer' else ''}"
    path.write_text(text(task), encoding="utf-8")
    data = {"data": {"objective": task, "train": {"path": str(path)}}}
    return Recipe.from_tables(merge(merge(TABLES, data), changes), "a test")


TASKS = ("mask", "classify", "tag", "answer")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Recipe, Prepared]]:
    folder = tmp_path_factory.mktemp("corpora")
    found = {}
    for task in TASKS:
        recipe = recipe_of(folder, task)
        prepare(recipe.data, recipe.tokenizer, folder / f"{task}-data")
        corpus = load_prepared(folder / f"{task}-data")
        found[task] = (recipe.with_labels(corpus), corpus)
    return found


def trainer(corpora: dict[str, tuple[Recipe, Prepared]], task: str, folder: Path, **changes: Any) -> Trainer:
    recipe, corpus = corpora[task]
    size = corpus.source_tokenizer.size
    model = build(recipe.model, VocabularySizes(size, size), seed=1)
    return Trainer(model, recipe.task, corpus, recipe.training.but(**changes), folder, {"recipe": "of a test"})


REGULARISED: dict[str, Any] = {
    "ema_decay": 0.9,
    "gradient_checkpointing": True,
    "r_drop": 2.0,
    "gradient_accumulation": 2,
    "threads": 2,
    "micro_batch_tokens": 29,
}


@pytest.mark.parametrize(
    ("task", "changes"),
    [*((task, {}) for task in TASKS), ("mask", REGULARISED), ("answer", REGULARISED)],
    ids=[*TASKS, "mask-regularised", "answer-regularised"],
)
def test_a_text_encoder_that_is_stopped_and_resumed_is_the_same_run_bit_by_bit(
    corpora: dict[str, tuple[Recipe, Prepared]], task: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    whole = trainer(corpora, task, tmp_path / "whole", **changes)
    recorded = run(whole)
    assert recorded.validations[0].loss > 0 and len(recorded.validations) == 3
    listener = StopAt(update=7)
    with pytest.raises(Interrupted):
        run(trainer(corpora, task, tmp_path / "parts", **changes), listener, listener.interruption)
    last = trainer(corpora, task, tmp_path / "parts", **changes)
    last.resume(listener)
    run(last)
    assert same(snapshot(last), snapshot(whole))
    assert (tmp_path / "parts/journal.jsonl").read_bytes() == (tmp_path / "whole/journal.jsonl").read_bytes()


@pytest.mark.parametrize("task", TASKS)
def test_half_precision_learns_about_the_same(
    corpora: dict[str, tuple[Recipe, Prepared]], task: str, tmp_path: Path
) -> None:
    full, half = (
        [step.loss for step in run(trainer(corpora, task, tmp_path / precision, updates=4, precision=precision)).steps]
        for precision in ("float32", "bfloat16")
    )
    assert half == pytest.approx(full, rel=0.05) and half != full


@pytest.mark.parametrize("task", TASKS)
def test_slices_and_threads_change_nothing_but_rounding(
    corpora: dict[str, tuple[Recipe, Prepared]], task: str, tmp_path: Path
) -> None:
    losses = []
    for name, changes in (
        ("one", {}),
        ("sliced", {"micro_batch_tokens": 19}),
        ("threads", {"micro_batch_tokens": 19, "threads": 3}),
    ):
        training = trainer(corpora, task, tmp_path / name, updates=5, **changes)
        losses.append([step.loss for step in run(training).steps])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[1] == losses[2]


def batch_source(recipe: Recipe, corpus: Prepared, **changes: Any) -> BatchSource:
    size = corpus.source_tokenizer.size
    model = build(recipe.model, VocabularySizes(size, size))
    return recipe.task.batch_source(corpus, recipe.training.but(**changes), model)


@pytest.mark.parametrize("task", ["mask", "classify"])
def test_a_batch_has_no_more_texts_than_it_may(corpora: dict[str, tuple[Recipe, Prepared]], task: str) -> None:
    recipe, corpus = corpora[task]
    feed = batch_source(recipe, corpus, max_batch_size=3)
    assert max(len(batch.tokens) for (_, batch), _ in zip(feed.starting(START), range(20), strict=False)) == 3


def test_pieces_are_hidden_anew_in_every_epoch_and_the_same_after_a_restart(
    corpora: dict[str, tuple[Recipe, Prepared]],
) -> None:
    recipe, corpus = corpora["mask"]
    feed = batch_source(recipe, corpus)
    seen = []
    position = None
    for after, batch in feed.starting(START):
        seen.append((after, batch))
        if after.epoch == 2:
            break
        position = position or after
    assert position is not None
    again = batch_source(recipe, corpus).starting(position)
    after, batch = next(again)
    assert after == seen[1][0] and torch.equal(batch.tokens, seen[1][1].tokens)
    assert torch.equal(batch.labels, seen[1][1].labels)
    mask = corpus.source_tokenizer.mask
    epochs: dict[int, int] = {}
    for after, batch in seen:
        epochs[after.epoch] = epochs.get(after.epoch, 0) + int((batch.tokens == mask).sum())
    first = sorted(batch.tokens.tolist() for after, batch in seen if after.epoch == 0)
    assert epochs and first != sorted(batch.tokens.tolist() for after, batch in seen if after.epoch == 1)


def test_validation_hides_the_same_pieces_each_time(
    corpora: dict[str, tuple[Recipe, Prepared]], tmp_path: Path
) -> None:
    training = trainer(corpora, "mask", tmp_path)
    assert training.validator is not None
    first, second = training.validator.validate(1), training.validator.validate(2)
    training.close()
    assert first.loss == second.loss and first.perplexity == pytest.approx(torch.tensor(first.loss).exp().item())


@pytest.mark.parametrize(
    ("task", "metric", "least"),
    [("classify", "label_accuracy", 0.95), ("tag", "span_f1", 0.9), ("answer", "exact_match", 0.7)],
)
def test_text_encoders_learn_their_task_and_the_loaded_folder_agrees(
    task: str, metric: str, least: float, tmp_path: Path
) -> None:
    changes: Table = {
        "model": {"model_dim": 32, "num_heads": 4, "ffn_dim": 48, "dropout": 0.0, "attention_dropout": 0.0},
        "training": {
            "updates": 60,
            "validate_every": 20,
            "metric": metric,
            "batch_tokens": 400,
            "label_smoothing": 0.0,
        },
    }
    recipe = recipe_of(tmp_path, task, **changes)
    folder = train(recipe, tmp_path / "run")
    contents = load_model(folder)
    assert contents.task == "text_encoding" and contents.notes["objective"] == task
    final = json.loads((folder / "journal.jsonl").read_text().splitlines()[-1])
    assert final["event"] == "final" and final[metric] >= least
    assert f"# bert, {task}" in (folder / "model/README.md").read_text()
    again = score_encoder(TextEncoder(contents), recipe.data.of_split("train")[0].path)  # type: ignore[union-attr]
    assert again[metric] >= least


def test_settings_that_do_not_fit_are_rejected_in_a_sentence(tmp_path: Path) -> None:
    for changes, message in (
        ({"model": {"name": "transformer", "model_dim": 14, "num_heads": 2, "ffn_dim": 19}}, "is for text encoders"),
        ({"model": {"head": "span"}}, "needs model.head = 'labels'"),
        ({"data": {"max_length": 99}}, "exceeds the model's 17 learned positions"),
        ({"training": {"bpe_dropout": 0.1}}, "training.bpe_dropout"),
        ({"training": {"metric": "bleu"}}, "classify is measured by loss, label_accuracy, macro_f1, micro_f1"),
        ({"training": {"metric": "span_f1"}}, "classify is measured by"),
    ):
        tables = dict(TABLES)
        if changes.get("model", {}).get("name"):
            tables["model"] = {}
        path = tmp_path / "a.tsv"
        data = {"data": {"objective": "classify", "train": {"path": str(path)}}}
        with pytest.raises(SettingsError, match=message):
            Recipe.from_tables(merge(merge(tables, data), changes), "a test")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="encodes texts and writes none"):
        Recipe.from_tables({"data": {"train": {"source": "a", "target": "b"}}, "model": {"preset": "bert_mini"}}, "it")


def test_spans_are_not_measured_where_labels_mark_none(
    corpora: dict[str, tuple[Recipe, Prepared]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.evaluation.labels.is_bio", lambda labels: False)
    training = trainer(corpora, "tag", tmp_path, metric="span_f1")
    with pytest.raises(SettingsError, match="choose one of loss, word_accuracy"):
        run(training)


def test_a_recipe_with_data_alone_gets_settings_by_its_examples(tmp_path: Path) -> None:
    path, examples = tmp_path / "recipe.toml", tmp_path / "a.conllu"
    examples.write_text("1\tDogs\tdog\tNOUN\n\n", encoding="utf-8")
    path.write_text(f'[data]\nobjective = "tag"\ntrain = {{path = "{examples}"}}\n', encoding="utf-8")
    recipe, reasons = read_recipe(path)
    assert recipe.tokenizer.kind == "wordpiece" and recipe.training.optimizer == "muon" and len(reasons) == 2
    assert recipe.model.model_dump()["head"] == "tags"
    assert Recipe.from_tables(recipe.to_tables(), "again") == recipe
