"""Every kind of attention learns: short sequences are reversed with it in encoder and decoder."""

from __future__ import annotations

from pathlib import Path

import pytest

import transduce
from tests.learning.test_learning import RECIPES, exact_match, held_out
from transduce.config import Table
from transduce.recipe import read_recipe
from transduce.run import train

pytestmark = pytest.mark.learning

KERNELS: dict[str, Table] = {
    "window": {"attention": "window", "window": 3},
    "window_global": {"attention": "window", "window": 2, "dilation": 2, "global_tokens": 2},
    "strided": {"attention": "strided", "stride": 3},
    "low_rank": {"attention": "low_rank", "rank": 8, "max_positions": 16, "decoder_attention": "full"},
    "linear": {"attention": "linear"},
    "performer": {"attention": "performer", "features": 32},
    "hashed": {"attention": "hashed", "hash_buckets": 4, "hash_rounds": 4, "hash_reach": 8},
}
SHORT = ["data.train.min_length=2", "data.train.max_length=6", "data.validation.min_length=2"]
SHORT += ["data.validation.max_length=6", "data.train.symbols=12", "data.validation.symbols=12"]
SHORT += ["training.updates=700", "training.batch_tokens=600", "training.decode_examples=0", "training.metric=loss"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_short_sequences_are_reversed_with_every_kernel_on_both_sides(tmp_path: Path, kernel: str) -> None:
    changes = [f"model.{name}={value}" for name, value in KERNELS[kernel].items()]
    recipe, _ = read_recipe(RECIPES / "reverse.toml", [*SHORT, *changes])
    sources, answers = held_out(recipe)
    translator = transduce.load(train(recipe, tmp_path / "run"))
    assert isinstance(translator, transduce.Translator)
    found = exact_match(translator, sources, answers, method="greedy")
    print(f"{kernel}: {found:.4f} of {len(sources)} unseen sources wholly right")
    assert found >= 0.97
