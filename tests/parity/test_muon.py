"""Muon against torch.optim.Muon, which computes in bfloat16: its own code made to compute in float32, and as it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from transduce.training.muon import Matrix, Muon

SHAPES = [(7, 7), (5, 13), (17, 3)]
RATES = [0.02, 0.05, 0.01]
DECAY = 0.1


def weights() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def trained(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> list[Tensor]:
    for step, rate in enumerate(RATES):
        for parameter, gradient in zip(parameters, gradients(step), strict=True):
            parameter.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def ours() -> list[Tensor]:
    parameters, other = weights(), nn.Parameter(torch.zeros(2))
    matrices = [Matrix(weight, [len(weight)]) for weight in parameters]
    return trained(Muon(matrices, AdamW([other]), 0.1, DECAY), parameters)


def theirs() -> list[Tensor]:
    parameters = weights()
    return trained(torch.optim.Muon(parameters, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"), parameters)


def test_three_steps_are_those_of_torch_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor)
    for mine, other in zip(ours(), theirs(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_three_steps_are_those_of_torch_but_for_its_rounding() -> None:
    moved = zip(ours(), theirs(), weights(), strict=True)
    for mine, other, start in moved:
        assert (mine - other).norm() < 0.05 * (mine - start).norm()
        assert not torch.equal(mine, other)
