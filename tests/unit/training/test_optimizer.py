"""Adam against Adam written by hand (Kingma and Ba 2015, algorithm 1)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from transduce.training.config import TrainingConfig
from transduce.training.optimizer import (
    build_optimizer,
    gradient_norm,
    optimizer_step,
    optimizer_tensors,
    put_optimizer_tensors,
    scale_gradients,
)


def layers(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3), nn.Linear(3, 2, bias=False))


def put_gradients(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def adam_by_hand(
    start: float, gradients: list[float], rates: list[float], config: TrainingConfig, decay: float = 0.0
) -> float:
    """One number's way, in plain arithmetic; `decay` is decoupled from the gradient (Loshchilov and Hutter 2019)."""
    value, first, second = start, 0.0, 0.0
    one, two = config.betas
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        value -= rate * decay * value
        first = one * first + (1 - one) * gradient
        second = two * second + (1 - two) * gradient**2
        value -= rate * (first / (1 - one**step)) / (math.sqrt(second / (1 - two**step)) + config.epsilon)
    return value


@pytest.mark.parametrize(
    "settings",
    [{}, {"betas": (0.8, 0.999), "epsilon": 1e-3}, {"optimizer": "adamw", "weight_decay": 0.1}],
    ids=str,
)
def test_every_weight_goes_the_way_of_adam_by_hand(settings: dict[str, object]) -> None:
    config = TrainingConfig.from_table(settings, "a test")
    model, rates = layers(), [0.01, 0.03, 0.02, 0.005, 0.007]
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    seen: dict[str, list[torch.Tensor]] = {name: [] for name in start}
    optimizer = build_optimizer(model, config)
    for step, rate in enumerate(rates):
        put_gradients(model, step)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            seen[name].append(parameter.grad.clone())
        optimizer_step(optimizer, rate)
    for name, parameter in model.named_parameters():
        decay = config.weight_decay if parameter.dim() > 1 else 0.0  # matrices only, not biases and norms
        for place in range(parameter.numel()):
            gradients = [float(gradient.flatten()[place]) for gradient in seen[name]]
            expected = adam_by_hand(float(start[name].flatten()[place]), gradients, rates, config, decay)
            assert float(parameter.detach().flatten()[place]) == pytest.approx(expected, rel=2e-5, abs=1e-6), name


def test_plain_gradient_descent_goes_down_the_gradient_and_remembers_nothing() -> None:
    model = layers()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = build_optimizer(model, TrainingConfig(optimizer="sgd"))
    put_gradients(model, 1)
    optimizer_step(optimizer, 0.25)
    for before, parameter in zip(start, model.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.detach(), before - 0.25 * parameter.grad)
    assert optimizer_tensors(model, optimizer) == {}


def test_the_defaults_are_those_of_section_5_3() -> None:
    config = TrainingConfig()
    assert (config.optimizer, config.betas, config.epsilon) == ("adam", (0.9, 0.98), 1e-9)


def test_moments_by_name_put_back_go_on_bit_by_bit() -> None:
    config = TrainingConfig()
    model = layers()
    optimizer = build_optimizer(model, config)
    for step in range(3):
        put_gradients(model, step)
        optimizer.step()
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert saved.keys() == {f"{moment}/{name}" for name in weights for moment in ("exp_avg", "exp_avg_sq", "step")}

    other = layers(seed=2)
    other.load_state_dict(weights)
    another = build_optimizer(other, config)
    put_optimizer_tensors(other, another, saved)
    for each, moving in ((model, optimizer), (other, another)):
        for step in range(3, 6):
            put_gradients(each, step)
            optimizer_step(moving, 0.01)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_saved_moments_are_not_shared_with_what_they_were_read_from() -> None:
    model = layers()
    optimizer = build_optimizer(model, TrainingConfig())
    put_gradients(model, 1)
    optimizer.step()
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    before = {name: tensor.clone() for name, tensor in saved.items()}
    put_optimizer_tensors(model, optimizer, saved)
    put_gradients(model, 2)
    optimizer.step()
    assert all(torch.equal(saved[name], before[name]) for name in saved)


def test_what_is_frozen_has_no_moments_and_does_not_move() -> None:
    model = layers()
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = build_optimizer(model, TrainingConfig(optimizer="adamw", weight_decay=0.5))
    put_gradients(model, 1)
    optimizer.step()
    assert torch.equal(model[0].weight, before)
    assert not any(name.endswith("0.weight") for name in optimizer_tensors(model, optimizer))


def test_the_gradients_length_is_that_of_all_of_it_and_scaling_shortens_it() -> None:
    model = nn.Linear(2, 1)
    model.weight.grad, model.bias.grad = torch.tensor([[3.0, 4.0]]), torch.tensor([12.0])
    assert float(gradient_norm(model)) == pytest.approx(13.0)
    scale_gradients(model, 1 / 13)
    assert model.weight.grad.flatten().tolist() == pytest.approx([3 / 13, 4 / 13])
    assert float(gradient_norm(model)) == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_shows_in_its_length(bad: float) -> None:
    model = nn.Linear(2, 1)
    model.weight.grad, model.bias.grad = torch.tensor([[1.0, bad]]), torch.tensor([2.0])
    assert not math.isfinite(float(gradient_norm(model)))
