"""The fused output layer and loss against torch's own two steps, and against the definition by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from transduce.nn.cpu import cross_entropy
from transduce.nn.cpu.cross_entropy import linear_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 3 * 13, 10**6])
def test_values_and_gradients_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, with_bias: bool, chunk: int
) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", chunk)
    generator = torch.Generator().manual_seed(1)
    shapes = [(11, 5), (13, 5), (13,)]
    hidden, weight, bias = (torch.randn(s, generator=generator, dtype=torch.double, requires_grad=True) for s in shapes)
    output = torch.randint(0, 13, (11,), generator=generator)
    used = bias if with_bias else None
    found = linear_cross_entropy(hidden, weight, used, output, smoothing)
    inputs = [hidden, weight, *([bias] if with_bias else [])]
    (3.0 * found.smoothed).backward()
    mine = [part.grad for part in inputs]
    logits = F.linear(hidden, weight, used)
    expected = F.cross_entropy(logits, output, label_smoothing=smoothing * 13 / 12, reduction="sum")
    theirs = torch.autograd.grad(3.0 * expected, inputs)
    torch.testing.assert_close(found.smoothed, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.plain, F.cross_entropy(logits, output, reduction="sum"), rtol=0, atol=1e-10)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_smoothing_gives_the_true_token_one_minus_epsilon_and_the_others_an_equal_share() -> None:
    """Three tokens with probabilities 1/2, 1/4, 1/4, the first one true, ε = 0.2."""
    weight = torch.tensor([[math.log(2.0)], [0.0], [0.0]], dtype=torch.double)
    found = linear_cross_entropy(torch.ones(1, 1, dtype=torch.double), weight, None, torch.tensor([0]), 0.2)
    by_hand = -(0.8 * math.log(1 / 2) + 0.1 * math.log(1 / 4) + 0.1 * math.log(1 / 4))
    assert float(found.smoothed) == pytest.approx(by_hand, abs=1e-12)
    assert float(found.plain) == pytest.approx(math.log(2.0), abs=1e-12)


def test_hits_are_counted_where_no_gradient_is_wanted() -> None:
    weight = torch.eye(3)
    with torch.no_grad():
        found = linear_cross_entropy(torch.eye(3), weight, None, torch.tensor([0, 1, 0]), 0.1)
    assert int(found.correct) == 2


def test_a_bias_learns_where_nothing_else_does() -> None:
    bias = torch.zeros(7, requires_grad=True)
    hidden, weight, output = torch.randn(5, 4), torch.randn(7, 4), torch.tensor([1, 2, 3, 4, 5])
    linear_cross_entropy(hidden, weight, bias, output, 0.0).smoothed.backward()
    expected = (hidden @ weight.t()).softmax(dim=-1).sum(dim=0) - F.one_hot(output, 7).sum(dim=0)
    torch.testing.assert_close(bias.grad, expected)


def test_scores_far_apart_stay_finite() -> None:
    hidden = torch.tensor([[300.0]], requires_grad=True)
    found = linear_cross_entropy(hidden, torch.tensor([[1.0], [-1.0]]), None, torch.tensor([1]), 0.1)
    assert float(found.plain) == pytest.approx(600.0)
    found.smoothed.backward()
    assert bool(torch.isfinite(hidden.grad).all())


def test_float32_agrees_with_float64() -> None:
    generator = torch.Generator().manual_seed(2)
    hidden, weight = torch.randn(997, 31, generator=generator), torch.randn(1009, 31, generator=generator)
    output = torch.randint(0, 1009, (997,), generator=generator)
    single = linear_cross_entropy(hidden, weight, None, output, 0.1)
    double = linear_cross_entropy(hidden.double(), weight.double(), None, output, 0.1)
    assert float(single.smoothed) == pytest.approx(float(double.smoothed), rel=1e-6)
