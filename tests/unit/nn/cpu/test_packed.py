"""Packed products against `F.linear`, and a frozen model against itself."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.errors import SettingsError
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.cpu.packed import LARGE, Int8Packed, Packed, packed
from transduce.nn.embedding import Output
from transduce.nn.linear import Linear

CAN_PACK = torch.backends.mkldnn.is_available()
VALUE = torch.randn(2, 7, 257, generator=torch.Generator().manual_seed(7))


@pytest.mark.skipif(not CAN_PACK, reason="this build of PyTorch has no oneDNN; install one that has")
@pytest.mark.parametrize("rows", [1, 2, 5, 17, 63, 64, 101])
@pytest.mark.parametrize("biased", [False, True])
def test_a_packed_product_is_the_plain_one(rows: int, biased: bool) -> None:
    weight, value = torch.randn(521, 257), torch.randn(rows, 257)
    bias = torch.randn(521) if biased else None
    found = packed(weight, bias)
    assert found is not None
    torch.testing.assert_close(found(value), F.linear(value, weight, bias), rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(not CAN_PACK, reason="this build of PyTorch has no oneDNN; install one that has")
def test_a_shortlist_is_packed_too_while_searching() -> None:
    output, hidden, tokens = Output(1009, 256), torch.randn(5, 256), torch.arange(1, 2 + LARGE // 256)
    torch.nn.init.normal_(output.weight)
    with torch.inference_mode():
        product = output.part(tokens)
        assert isinstance(product, Packed)
        torch.testing.assert_close(product(hidden), hidden @ output.weight[tokens].t(), rtol=1e-5, atol=1e-4)


def test_small_matrices_and_other_numbers_stay_as_they_are() -> None:
    assert packed(torch.randn(5, 7), None) is None
    assert packed(torch.randn(5, 7), None, "int8") is None
    assert packed(torch.randn(LARGE // 64, 64).double(), None) is None


def frozen() -> Linear:
    layer = Linear(257, 521).eval()
    layer.freeze()
    return layer


@torch.no_grad()
def is_plain(layer: Linear) -> bool:
    """Whether one row, which is not packed, several rows, which are, and the plain product agree."""
    dtype, expected = layer.weight.dtype, F.linear(VALUE.to(layer.weight.dtype), layer.weight, layer.bias)
    several, one = layer(VALUE.to(dtype)), layer(VALUE[0, :1].to(dtype))
    near = {"rtol": 1e-5, "atol": 1e-4}
    return torch.allclose(several, expected, **near) and torch.allclose(one, expected[0, :1], **near)


def cast(layer: Linear) -> Linear:
    return layer.double()


def train(layer: Linear) -> Linear:
    layer.train()(VALUE).square().sum().backward()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    optimizer.step()
    return layer.eval()


def train_without_saying_so(layer: Linear) -> Linear:
    """In the mode for use: gradients come all the same, and the optimizer writes to the weights."""
    layer(VALUE).square().sum().backward()
    torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True).step()
    return layer


def write(layer: Linear) -> Linear:
    with torch.no_grad():
        layer.weight.mul_(2.0)
    return layer


def load(layer: Linear) -> Linear:
    layer.load_state_dict(Linear(257, 521).state_dict())
    return layer


def assign(layer: Linear) -> Linear:
    layer.load_state_dict(Linear(257, 521).state_dict(), assign=True)
    return layer


def copied(layer: Linear) -> Linear:
    twin = copy.deepcopy(layer)
    assert twin.weight.data_ptr() != layer.weight.data_ptr()
    with torch.no_grad():
        twin.weight.mul_(3.0)
    return twin


@pytest.mark.skipif(not CAN_PACK, reason="this build of PyTorch has no oneDNN; install one that has")
@pytest.mark.parametrize("change", [cast, train, train_without_saying_so, write, load, assign, copied])
def test_a_layer_that_was_frozen_follows_its_weights(change: Callable[[Linear], Linear]) -> None:
    layer = frozen()
    with torch.inference_mode():
        assert layer.packed is not None
    assert is_plain(layer)
    before = layer.weight.detach().clone()
    changed = change(layer)
    assert change is cast or not torch.equal(changed.weight, before)
    assert is_plain(changed)


def test_a_frozen_layer_has_a_gradient_when_requested() -> None:
    layer, value = frozen(), VALUE.clone().requires_grad_()
    layer(value).sum().backward()
    torch.testing.assert_close(value.grad, layer.weight.detach().sum(dim=0).expand_as(VALUE))


@pytest.fixture
def model() -> AnyTransducer:
    config = TransformerConfig(model_dim=256, ffn_dim=521, num_heads=4, num_layers=2, norm="pre")
    return build(config, VocabularySizes(1009, 1009), seed=3).eval()


def stepped(model: AnyTransducer) -> Tensor:
    """The scores of some targets, token by token."""
    source, target = (torch.arange(1, rows * length + 1).view(rows, length) for rows, length in ((3, 7), (3, 5)))
    with torch.inference_mode():
        state = model.start(model.encode(source, torch.ones_like(source, dtype=torch.bool)))
        found = []
        for tokens in target.unbind(dim=1):
            hidden, state = model.step(tokens, state)
            found.append(model.logits(hidden))
    return torch.stack(found)


def test_a_frozen_model_computes_the_same_as_before(model: AnyTransducer) -> None:
    before = stepped(model)
    model.freeze()
    torch.testing.assert_close(stepped(model), before, rtol=1e-4, atol=1e-4)


def test_a_model_that_has_translated_can_be_copied_and_trained_further(model: AnyTransducer) -> None:
    model.freeze()
    before = stepped(model)
    twin = copy.deepcopy(model)
    assert torch.equal(stepped(model), before)
    torch.testing.assert_close(stepped(twin), before, rtol=1e-4, atol=1e-4)
    twin.train()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.1)
    fresh = build(model.config, model.sizes, seed=5).eval()
    fresh.load_state_dict(twin.state_dict())
    assert torch.equal(stepped(twin.eval()), stepped(fresh))
    model.load_state_dict(twin.state_dict())
    assert torch.equal(stepped(model), stepped(fresh))
    assert stepped(model.double()).dtype == torch.float64


@pytest.mark.parametrize("rows", [1, 5, 67])
@pytest.mark.parametrize("biased", [False, True])
def test_an_int8_product_is_the_integer_arithmetic_of_rounded_factors(rows: int, biased: bool) -> None:
    weight, value = torch.randn(521, 257), torch.randn(rows, 257)
    bias = torch.randn(521) if biased else None
    product = packed(weight, bias, "int8")
    assert isinstance(product, Int8Packed)
    scales = [matrix.abs().amax(dim=1, keepdim=True) / 127 for matrix in (value, weight)]
    left, right = ((m / s).round().double() for m, s in zip((value, weight), scales, strict=True))
    expected = (left @ right.t()).float() * scales[0] * scales[1].t() + (0 if bias is None else bias)
    torch.testing.assert_close(product(value), expected, rtol=1e-5, atol=1e-5)
    near = F.linear(value, weight, bias)
    assert float((product(value) - near).norm() / near.norm()) < 0.02


def test_a_row_of_zeros_is_zero_in_int8() -> None:
    product = packed(torch.randn(521, 257), None, "int8")
    assert product is not None and not product(torch.zeros(3, 257)).any()


def test_int8_weights_follow_what_is_written_to_them() -> None:
    weight = torch.randn(521, 257)
    product = packed(weight, None, "int8")
    assert product is not None
    weight.zero_()
    assert not product(torch.randn(3, 257)).any()


def test_a_model_frozen_in_int8_computes_nearly_the_same_and_thaws() -> None:
    model = build(TransformerConfig(model_dim=256, ffn_dim=1024, num_layers=1), VocabularySizes(601, 601), seed=3)
    assert isinstance(model, Transformer)
    source, allowed = torch.randint(4, 601, (3, 7)), torch.ones(3, 7, dtype=torch.bool)
    with torch.inference_mode():
        plain = model.eval()(source, model.encode(source, allowed))
        model.freeze("int8")
        rounded = model(source, model.encode(source, allowed))
    assert 0 < float((rounded - plain).norm() / plain.norm()) < 0.05
    model.train().eval()
    with torch.inference_mode():
        assert torch.equal(model(source, model.encode(source, allowed)), plain)


def test_an_unknown_precision_is_rejected() -> None:
    with pytest.raises(SettingsError, match="int4"):
        packed(torch.randn(521, 257), None, "int4")  # type: ignore[arg-type]
