"""The Neural GPU and its extension: what is particular to an image that is worked on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import transduce
from tests.invariants.cases import Case, case, draw_source, draw_target, encode, make_model
from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.text_encoder import TextEncoder
from transduce.models.ancestors.extended_neural_gpu import ExtendedNeuralGpu, ImageState
from transduce.models.ancestors.neural_gpu import NeuralGpu, NeuralGpuConfig
from transduce.models.catalog import build, preset
from transduce.models.interface import VocabularySizes
from transduce.recipe import Recipe
from transduce.run import train

SMALL = case("extended_neural_gpu_small", height=3)


def model_of(case: Case) -> ExtendedNeuralGpu:
    model = make_model(case)
    assert isinstance(model, ExtendedNeuralGpu)
    return model


def test_the_papers_weights_are_two_gated_convolutions_in_each_of_six_sets() -> None:
    """24 channels and kernels of 3 × 3: three convolutions with their biases in each gated one."""
    model = build(preset("neural_gpu")[1], VocabularySizes(13, 13))
    assert isinstance(model, NeuralGpu)
    one = 3 * (24 * 24 * 9 + 24)
    assert sum(parameter.numel() for parameter in model.encoder.parameters()) == 6 * 2 * one


def test_a_tape_holds_the_tokens_that_were_read_and_grows_past_the_source() -> None:
    model = model_of(SMALL)
    with torch.no_grad():
        state = model.start(encode(model, draw_source(SMALL, [3])))
        for place, token in enumerate([3, 7, 11, 2, 9]):
            _, state = model.step(torch.tensor([token]), state)
            assert isinstance(state, ImageState)
            assert state.tape.shape[1] == state.image.shape[3] == max(3, place + 1)
        expected = model.target_embedding.weight[[3, 7, 11, 2, 9]]
    assert torch.equal(state.tape[0], expected)


def test_gradients_reach_every_parameter_of_a_long_enough_source() -> None:
    model = model_of(case("extended_neural_gpu", num_sets=3))
    model(draw_target(SMALL, 2, 4), encode(model, draw_source(SMALL, [5, 4]))).sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == ["output.weight", "output.bias"]


TAGS = "\n".join(f"a{n} x\nb y\n" for n in range(40))
"""Sentences of two words."""


def recipe(folder: Path, task: str = "tag", text: str = TAGS) -> Recipe:
    (folder / "a.tsv").write_text(text, encoding="utf-8")
    tables: Table = {
        "data": {
            "objective": task,
            "train": {"path": str(folder / "a.tsv")},
            "max_length": 8,
            "validation_fraction": 0.1,
        },
        "tokenizer": {"kind": "word", "min_frequency": 1, "joint": True},
        "model": {"preset": "neural_gpu", "model_dim": 5, "height": 2, "num_sets": 2},
        "training": {"batch_tokens": 200, "updates": 3, "validate_every": 3, "threads": 1, "relaxation_updates": 2},
    }
    return Recipe.from_tables(tables, "recipe.toml")


def test_a_neural_gpu_is_trained_and_used_like_any_text_encoder(tmp_path: Path) -> None:
    reader = transduce.load(train(recipe(tmp_path), tmp_path / "run"))
    assert isinstance(reader, TextEncoder)
    (message,) = reader.predict(["a3 b"])
    assert {word.label for word in message} <= {"x", "y"} and len(message) == 2  # type: ignore[union-attr]
    with pytest.raises(SettingsError, match="no attention"):
        reader.attention("a3 b")


def test_it_is_rejected_a_task_that_it_has_no_head_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"neural_gpu has no head for .* classify"):
        recipe(tmp_path, "classify", "a\tx\n")


def test_a_kernel_without_a_middle_is_rejected() -> None:
    with pytest.raises(SettingsError, match="kernel must be odd"):
        NeuralGpuConfig.from_table({"kernel": 4}, "recipe.toml [model]")
