"""Noise on the gradient: as strong as it should be, dying away, the same whenever it is drawn again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transduce.training.update import add_gradient_noise, deviation


def noisy(strength: float = 0.3, seed: int = 1, update: int = 7) -> torch.Tensor:
    model = nn.Linear(300, 200, bias=False)
    model.weight.grad = torch.full_like(model.weight, 0.5)
    add_gradient_noise(model, strength, seed, update)
    return model.weight.grad


def test_its_variance_falls_as_the_paper_says() -> None:
    assert deviation(1.0, 0) == 1.0
    assert deviation(0.3, 7) ** 2 == pytest.approx(0.3 / 8**0.55)


def test_it_is_gaussian_noise_around_the_gradient() -> None:
    grad = noisy()
    assert float(grad.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(grad.std()) == pytest.approx(deviation(0.3, 7), rel=0.02)


def test_it_is_a_function_of_seed_and_update() -> None:
    assert torch.equal(noisy(), noisy())
    assert not torch.equal(noisy(), noisy(seed=2))
    assert not torch.equal(noisy(), noisy(update=8))


def test_no_strength_is_no_noise_and_what_has_no_gradient_gets_none() -> None:
    assert torch.equal(noisy(strength=0.0), torch.full((200, 300), 0.5))
    model = nn.Linear(2, 3)
    add_gradient_noise(model, 1.0, 1, 1)
    assert model.weight.grad is None
