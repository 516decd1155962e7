"""What a model cannot do is refused before anything is prepared for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.training.example import TABLES
from transduce.config import merge
from transduce.errors import SettingsError
from transduce.models.interface import VocabularySizes
from transduce.recipe import Recipe
from transduce.run import train
from transduce.training.fitting import outline, refuse_unfit

MACHINE = {"preset": "ntm_lstm"}
UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"model": MACHINE, "training": {"source_vectors": "v.txt"}}, "source_vectors is for models with an embedding"),
    ({"model": MACHINE, "training": {"target_vectors": "v.txt"}}, "target_vectors is for models with an embedding"),
    ({"model": MACHINE, "search": {"coverage": 0.2}}, "this turing_machine has no attention to its source"),
    ({"model": {"preset": "cho"}, "search": {"coverage": 0.2}}, "this attentive_rnn has no attention to its source"),
    ({"model": {"preset": "tiny"}, "training": {"join_sets": 5}}, "a transformer has none"),
]
FIT: list[dict[str, Any]] = [
    {"model": {"preset": "bahdanau"}, "search": {"coverage": 0.2}},
    {"model": {"preset": "tiny"}, "search": {"coverage": 0.2}, "training": {"source_vectors": "v.txt"}},
    {"model": {"preset": "extended_neural_gpu_small"}, "training": {"join_sets": 5}},
]


def recipe(tables: dict[str, Any]) -> Recipe:
    return Recipe.from_tables({**merge({**TABLES, "model": {}}, tables), "model": tables["model"]}, "a recipe")


@pytest.mark.parametrize(("tables", "reason"), UNFIT, ids=str)
def test_what_a_model_cannot_do_is_refused_at_once(tables: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=reason):
        train(recipe(tables), tmp_path / "run")
    assert not list((tmp_path / "run").glob("*"))


@pytest.mark.parametrize("tables", FIT, ids=str)
def test_what_it_can_do_is_not(tables: dict[str, Any]) -> None:
    made = recipe(tables)
    refuse_unfit(made.model, made.training, made.search)


def test_an_outline_takes_no_memory() -> None:
    made = recipe({"model": {"preset": "paper_big"}})
    assert all(weight.is_meta for weight in outline(made.model, VocabularySizes(50_000, 50_000)).parameters())
