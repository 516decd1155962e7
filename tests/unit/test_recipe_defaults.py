"""What a recipe leaves out, and what is chosen instead."""

from __future__ import annotations

from typing import Any

import pytest

from transduce.recipe import Recipe, fill_in

TASK = {"task": "copy", "size": 31, "max_length": 5, "symbols": 7}


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_language_model_may_be_searched_in_any_way(method: str) -> None:
    tables = {"data": {"train": {"text": "a.txt"}}, "model": {"preset": "gpt_mini"}, "search": {"method": method}}
    found = Recipe.from_tables(tables, "a recipe").search
    assert (found.method, found.max_length) == (method, 200)
    assert found.temperature == (0.8 if method == "sample" else 1.0)


@pytest.mark.parametrize(
    ("training", "slices"),
    [({}, 1024), ({"batch_tokens": 900}, 450), ({"batch_tokens": 900, "gradient_accumulation": 4}, 1024)],
)
def test_an_update_is_at_least_two_slices(training: dict[str, Any], slices: int) -> None:
    tables = {
        "data": {"train": TASK},
        "model": {"model_dim": 64, "num_heads": 2},
        "training": {**training, "precision": "float32"},
    }
    assert fill_in(Recipe.from_tables(tables, "test")).training.micro_batch_tokens == slices
