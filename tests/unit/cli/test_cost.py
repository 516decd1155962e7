"""`transduce cost` for a run's own recipe; its numbers are tested with the evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transduce.cli.main import run
from transduce.inference.load import load_translator


def test_the_parameters_of_a_recipe_are_those_of_its_model(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translator = load_translator("run")
    size = str(translator.target.size)
    assert run(["cost", "--recipe", "run/recipe.toml", "--vocab-size", size, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == sum(parameter.numel() for parameter in translator.model.parameters()) == 5552


def test_a_person_gets_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "--preset", "bahdanau", "--vocab-size", "997", "--source-vocab-size", "991"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("parameters\n  embeddings")
