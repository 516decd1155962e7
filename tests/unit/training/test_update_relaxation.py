"""Relaxed weight sharing: sets of weights begin apart and end as one, when the recipe says."""

from __future__ import annotations

from pathlib import Path

import torch

import transduce
from tests.unit.training.example import TABLES
from transduce.config import merge
from transduce.model_folder import load_model
from transduce.models.ancestors.extended_neural_gpu import ExtendedNeuralGpu
from transduce.recipe import Recipe
from transduce.run import train
from transduce.training.update import pull

MODEL = {"name": "extended_neural_gpu", "model_dim": 5, "height": 2, "num_layers": 1, "num_sets": 3, "dropout": 0.0}


def test_the_pull_grows_until_the_sets_are_one() -> None:
    assert [pull(10, update) for update in (0, 5, 10, 11)] == [0.0, 0.25, 1.0, 1.0]


def trained(folder: Path, relaxation_updates: int) -> ExtendedNeuralGpu:
    training = {"updates": 4, "validate_every": 4, "decode_examples": 0, "relaxation_updates": relaxation_updates}
    tables = merge({**TABLES, "model": MODEL}, {"training": training})
    model = load_model(train(Recipe.from_tables(tables, "a test"), folder)).model
    assert isinstance(model, ExtendedNeuralGpu)
    return model


def test_sets_are_one_from_the_update_on_that_the_recipe_says(tmp_path: Path) -> None:
    for relaxation_updates, one in ((3, True), (0, False)):
        first, *others = trained(tmp_path / str(relaxation_updates), relaxation_updates).encoder.sets
        for other in others:
            same = [torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True)]
            assert all(same) if one else not any(same[:1])
    assert isinstance(transduce.load(tmp_path / "3")("a b"), str)
