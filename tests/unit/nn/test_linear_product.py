"""Products in bfloat16: close to those in float32, by hand where rounding is known, and of few shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transduce.models.block import recomputed
from transduce.nn import linear as product
from transduce.nn.attention.multi_head import HeadShape, SelfAttention
from transduce.nn.cpu.cross_entropy import linear_cross_entropy, paired_cross_entropy
from transduce.nn.embedding import Output
from transduce.nn.linear import PANEL, Linear, panels, set_half_products

ROUNDED = 2**-8
"""Largest relative error of a number that was rounded to bfloat16."""


def _random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def _linear(in_dim: int, out_dim: int, bias: bool = True) -> Linear:
    layer = Linear(in_dim, out_dim, bias=bias)
    for seed, parameter in enumerate(layer.parameters()):
        parameter.data = _random(*parameter.shape, seed=seed + 5).data
    return layer


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 7), (3, 23, 7), (67, 7), (2 * PANEL, 7)])
def test_a_half_layer_is_a_full_one_with_its_factors_rounded(shape: tuple[int, ...], bias: bool) -> None:
    """The truth is computed in float64 from factors that were rounded by hand; sums are not rounded on the way."""
    layer, value = _linear(7, 11, bias), _random(*shape)
    set_half_products(layer, True)
    found = layer.train()(value)
    upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(3))
    found.backward(upstream)
    weight, rows, grad = (
        part.detach().bfloat16().double() for part in (layer.weight, value.view(-1, 7), upstream.view(-1, 11))
    )
    by_hand = rows @ weight.t() + (layer.bias.detach().double() if bias else 0.0)
    assert found.dtype == torch.float32
    assert found.shape == (*shape[:-1], 11)
    for mine, truth, parts in (
        (found.view(-1, 11), by_hand, rows.abs() @ weight.abs().t()),
        (value.grad.view(-1, 7), grad @ weight, grad.abs() @ weight.abs()),
        (layer.weight.grad, grad.t() @ rows, grad.abs().t() @ rows.abs()),
    ):
        assert bool(((mine.double() - truth).abs() <= ROUNDED * parts + 1e-6).all())
    if bias:
        torch.testing.assert_close(layer.bias.grad, upstream.view(-1, 11).sum(dim=0))


def test_rounding_is_for_training_only() -> None:
    layer, value = _linear(7, 11), _random(5, 7)
    full = layer(value)
    set_half_products(layer, True)
    assert not torch.equal(layer.train()(value), full)
    assert torch.equal(layer.eval()(value), full)
    set_half_products(layer, False)
    assert torch.equal(layer.train()(value), full)


def test_batches_of_any_size_come_down_to_a_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN keeps code for every shape it has seen: with a new one in each batch, memory would grow with the data."""
    seen: set[tuple[torch.Size, torch.Size]] = set()
    plain = torch.mm

    def watched(one: Tensor, other: Tensor, **options: Tensor) -> Tensor:
        seen.add((one.shape, other.shape))
        return plain(one, other, **options)

    monkeypatch.setattr(product.torch, "mm", watched)
    layer = _linear(7, 11)
    set_half_products(layer, True)
    for count in range(1, 3 * PANEL + 1):
        layer.train()(_random(count, 7)).sum().backward()
    assert len(seen) == 3 * 3  # sizes × (forwards, backwards to the input, backwards to the weight)


def test_panels_are_filled_up_with_zeros_once() -> None:
    filled = panels(torch.ones(PANEL + 1, 3))
    assert filled.shape == (2 * PANEL, 3)
    assert float(filled[: PANEL + 1].sum()) == 3 * (PANEL + 1)
    assert float(filled[PANEL + 1 :].abs().sum()) == 0.0
    assert panels(filled) is filled


def _usual(hidden: Tensor, weight: Tensor, bias: Tensor, output: Tensor, half: bool) -> Tensor:
    return linear_cross_entropy(hidden, weight, bias, output, 0.1, half).smoothed


def _paired(hidden: Tensor, weight: Tensor, bias: Tensor, output: Tensor, half: bool) -> Tensor:
    return paired_cross_entropy((hidden, hidden * 0.9), weight, bias, output, 0.1, 3.0, half).smoothed


@pytest.mark.parametrize("loss", [_usual, _paired])
def test_losses_with_rounded_products_are_nearly_the_same(loss: Callable[..., Tensor]) -> None:
    output = torch.randint(0, 101, (67,), generator=torch.Generator().manual_seed(2))
    results = []
    for half in (False, True):
        hidden, weight, bias = _random(67, 13), _random(101, 13, seed=2), _random(101, seed=3)
        value = loss(hidden, weight, bias, output, half)
        value.backward()
        results.append((value, hidden.grad, weight.grad, bias.grad))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-3, atol=0)
    for full, half_grad in zip(results[0][1:], results[1][1:], strict=True):
        assert not torch.equal(full, half_grad)
        assert float((full - half_grad).norm() / full.norm()) < 4 * ROUNDED


def test_a_model_is_reached_everywhere_and_recomputes_the_same() -> None:
    attention = SelfAttention(12, HeadShape.plain(3, 4, 4), bias=True)
    output = Output(17, 12)
    torch.nn.init.normal_(output.weight)
    set_half_products(torch.nn.ModuleList([attention, output]), True)
    assert attention.qkv_proj.half_products and attention.out_proj.half_products and output.half_products
    value = _random(2, 5, 12)
    grads = []
    for run in (attention, lambda states: recomputed(attention, states)):
        attention.zero_grad()
        value.grad = None
        run(value).square().sum().backward()
        grads.append([value.grad, *(parameter.grad.clone() for parameter in attention.parameters())])
    for one, again in zip(*grads, strict=True):
        assert torch.equal(one, again)
