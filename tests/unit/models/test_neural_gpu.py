"""The Neural GPU and its extension: what is particular to an image that is worked on."""

from __future__ import annotations

import pytest
import torch

from tests.laws.cases import Case, case, draw_source, draw_target, encode, make_model
from transduce.errors import SettingsError
from transduce.models.catalog import build, preset
from transduce.models.extended_neural_gpu import ExtendedNeuralGpu, ImageState
from transduce.models.interface import VocabularySizes
from transduce.models.neural_gpu import NeuralGpu, NeuralGpuConfig

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


def test_a_kernel_without_a_middle_is_refused() -> None:
    with pytest.raises(SettingsError, match="kernel must be odd"):
        NeuralGpuConfig.from_table({"kernel": 4}, "recipe.toml [model]")
