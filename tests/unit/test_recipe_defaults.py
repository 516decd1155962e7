"""What a recipe leaves out, and what is chosen instead."""

from __future__ import annotations

from typing import Any

import pytest

from transduce import recipe as recipes
from transduce.recipe import Recipe, fill_in, precision_note

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


@pytest.mark.parametrize(
    ("instructions", "width", "expected", "reason"),
    [
        (("AVX512-BF16",), 128, "bfloat16", "has AVX512-BF16"),
        (("AMX", "AVX512-BF16"), 512, "bfloat16", "has AMX"),
        (("AVX512-BF16",), 64, "float32", "below a width of 128"),
        ((), 512, "float32", "no bfloat16 instructions"),
    ],
)
def test_the_precision_follows_from_processor_and_model(
    instructions: tuple[str, ...], width: int, expected: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: lambda name=name: name in instructions for name in recipes.HALF_INSTRUCTIONS}
    monkeypatch.setattr(recipes, "HALF_INSTRUCTIONS", known)
    tables = {"data": {"train": TASK}, "model": {"model_dim": width}, "training": {"device": "cpu"}}
    given = Recipe.from_tables(tables, "test")
    assert fill_in(given).training.precision == expected
    assert reason in str(precision_note(given))
    assert precision_note(fill_in(given)) is None


def test_torch_still_states_the_instructions_of_a_processor() -> None:
    assert all(isinstance(has(), bool) for has in recipes.HALF_INSTRUCTIONS.values())
    assert hasattr(recipes.torch.cpu, "_is_avx512_bf16_supported")
    assert hasattr(recipes.torch.cpu, "_is_amx_tile_supported")


def test_a_fraction_of_warmup_becomes_a_number_of_updates() -> None:
    tables = {"data": {"train": TASK}, "training": {"warmup": 0.2, "updates": 501, "device": "cpu"}}
    filled = fill_in(Recipe.from_tables(tables, "test"))
    assert filled.training.warmup == 100
    assert fill_in(filled.but_training(updates=5000)).training.warmup == 100
