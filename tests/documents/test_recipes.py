"""Every recipe of the folder loads, says what it is for, and trains."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import transduce
from tests.babi_corpus import simple_stories
from transduce.data.synthetic import SyntheticPictures, SyntheticTask
from transduce.inference.load import load_text_encoder
from transduce.recipe import Recipe, read_recipe
from transduce.run import train
from transduce.tasks.language_modeling.task import LanguageModelingConfig
from transduce.tasks.text_encoding.config import TextEncodingConfig

FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))
LONG = sorted((FOLDER / "reproduce").glob("*.toml"))
"""Runs of hours, which `make` has a target for: too large to be tried here."""


def test_there_are_recipes() -> None:
    assert {path.stem for path in RECIPES} >= {"copy", "reverse", "sort", "addition", "reverse-rnn"}


@pytest.fixture(params=RECIPES, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    """Each recipe in turn."""
    return Path(request.param)


def test_a_recipe_says_at_its_top_what_it_is_for_and_how_to_run_it(path: Path) -> None:
    comment = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert len(comment) >= 2
    assert f"transduce train --recipe recipes/{path.name} --output runs/{path.stem}" in "\n".join(comment)


def test_a_recipe_chooses_everything_itself_and_comes_back_from_toml_the_same(path: Path) -> None:
    recipe, reasons = read_recipe(path)
    assert reasons == []
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml()), path.name) == recipe


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.stem)
def test_a_long_run_loads_and_has_a_target(path: Path) -> None:
    recipe, reasons = read_recipe(path)
    assert reasons == [] and Recipe.from_tables(tomllib.loads(recipe.to_toml()), path.name) == recipe
    command = f"transduce train --recipe recipes/reproduce/{path.name} --output runs/{path.stem}"
    assert command in path.read_text(encoding="utf-8")
    assert f"reproduce-{path.stem}:" in (FOLDER.parent / "Makefile").read_text(encoding="utf-8")


def test_training_and_validation_pairs_of_a_task_are_drawn_with_different_seeds(path: Path) -> None:
    data = read_recipe(path)[0].data
    if isinstance(data.train, SyntheticTask) and isinstance(data.validation, SyntheticTask):
        assert data.train.task == data.validation.task
        assert data.train.seed != data.validation.seed
    if isinstance(data.train, SyntheticPictures):
        assert isinstance(data.validation, SyntheticPictures)
        assert (data.train.pictures, data.validation.pictures) == ("seen", "held_out")


def test_a_recipe_trains_and_its_model_translates(path: Path, tmp_path: Path) -> None:
    """Two updates of a smaller corpus: whether it learns is asked by `make learn`. Where a recipe names files, a task
    or a small text stands in for them."""
    changes = ["training.updates=2", "training.validate_every=2", "training.decode_examples=3"]
    if isinstance(read_recipe(path)[0].data, LanguageModelingConfig):
        (tmp_path / "text").write_text("A small text stands here.\n" * 99)
        recipe, _ = read_recipe(path, [*changes, f"data.train.text={tmp_path / 'text'}"])
        assert isinstance(transduce.load(train(recipe, tmp_path / "run"))("A small"), str)
        return
    if isinstance(read_recipe(path)[0].data, TextEncodingConfig):
        (tmp_path / "stories").write_text("\n".join(simple_stories(20, seed=1)))
        changes += [f"data.train=[{{path='{tmp_path / 'stories'}', format='babi'}}]", "model.linear_updates=1"]
        recipe, _ = read_recipe(path, changes)
        reader = load_text_encoder(train(recipe, tmp_path / "run"))
        assert len(reader.predict(["Anna went to the attic. Where is Anna?"])) == 1
        return
    if isinstance(read_recipe(path)[0].data.train, SyntheticTask | SyntheticPictures):
        changes += ["data.train.size=300", "data.validation.size=20"]
    else:
        changes += [
            f"data.{split}={{task='reverse', size={size}}}" for split, size in (("train", 300), ("validation", 20))
        ]
    recipe, _ = read_recipe(path, changes)
    run = train(recipe, tmp_path / "run")
    source = next(recipe.data.train.pairs()).source
    assert isinstance(transduce.load(run)(source), str)
