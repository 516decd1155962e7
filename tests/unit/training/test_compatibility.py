"""What a model cannot do is refused before anything is prepared for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.training.example import TABLES
from transduce.config import merge
from transduce.errors import SettingsError
from transduce.models.interface import VocabularySizes
from transduce.recipe import Recipe, resume_recipe
from transduce.run import train
from transduce.training.compatibility import check_model_settings, outline

MACHINE = {"preset": "ntm_lstm"}
WHOLE = {"model", "data"}
"""Tables that stand in the place of the example's."""
UNCHECKED = {"train": TABLES["data"]["train"], "validation_fraction": 0.0}
UNFIT: list[tuple[dict[str, Any], str]] = [
    (
        {"model": MACHINE, "training": {"source_vectors": "v.txt"}},
        "source_vectors needs an embedding",
    ),
    (
        {"model": MACHINE, "training": {"target_vectors": "v.txt"}},
        "target_vectors needs an embedding",
    ),
    ({"model": MACHINE, "search": {"coverage_penalty": 0.2}}, "this turing_machine has none"),
    ({"model": {"preset": "cho"}, "search": {"coverage_penalty": 0.2}}, "this rnn has none"),
    ({"model": {"preset": "tiny"}, "training": {"relaxation_updates": 5}}, "relaxation_updates"),
    ({"model": {"preset": "luong"}, "training": {"optimizer": "muon"}}, "a rnn has none"),
    (
        {"model": {"preset": "tiny"}, "training": {"metric": "bleu"}, "data": UNCHECKED},
        "needs validation data",
    ),
]
FIT: list[dict[str, Any]] = [
    {"model": {"preset": "bahdanau"}, "search": {"coverage_penalty": 0.2}},
    {"model": {"preset": "tiny"}, "search": {"coverage_penalty": 0.2}, "training": {"source_vectors": "v.txt"}},
    {"model": {"preset": "conv_small"}, "training": {"optimizer": "muon", "weight_decay": 0.1}},
    {"model": {"preset": "extended_neural_gpu_small"}, "training": {"relaxation_updates": 5}},
]


def recipe(tables: dict[str, Any]) -> Recipe:
    return Recipe.from_tables({**merge(TABLES, tables), **{name: tables[name] for name in WHOLE & tables.keys()}}, "it")


@pytest.mark.parametrize(("tables", "reason"), UNFIT, ids=str)
def test_what_a_model_cannot_do_is_rejected_before_anything_is_prepared(
    tables: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.run_setup.prepare", lambda *_: pytest.fail("it is prepared"))
    with pytest.raises(SettingsError, match=reason):
        train(recipe(tables), tmp_path / "run")
    assert not list((tmp_path / "run").glob("*"))


@pytest.mark.parametrize("tables", FIT, ids=str)
def test_what_it_can_do_is_not(tables: dict[str, Any]) -> None:
    made = recipe(tables)
    check_model_settings(made.data, made.model, made.training, made.search)


def test_a_run_that_was_begun_with_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that meant nothing did no harm either."""
    monkeypatch.setattr("transduce.run_setup.check_model_settings", lambda *_: None)
    run = train(
        Recipe.from_tables(merge(TABLES, {"training": {"relaxation_updates": 5, "updates": 2}}), "a recipe"),
        tmp_path / "run",
    )
    monkeypatch.undo()
    train(resume_recipe(run), run, resume=True, finish=True)


def test_an_outline_takes_no_memory() -> None:
    made = recipe({"model": {"preset": "paper_big"}})
    assert all(weight.is_meta for weight in outline(made.model, VocabularySizes(50_000, 50_000)).parameters())


def test_a_metric_needs_pairs_that_were_held_out(tmp_path: Path) -> None:
    """Of one pair none can be held out, which shows only when it is read."""
    (tmp_path / "pairs.tsv").write_text("a b\tb a\n")
    tables = {"data": {"train": {"path": str(tmp_path / "pairs.tsv")}}, "training": {"metric": "bleu", "updates": 1}}
    with pytest.raises(SettingsError, match=r"could be held out; give data\.validation"):
        train(recipe(tables), tmp_path / "run")
    assert not list((tmp_path / "run").glob("*"))
