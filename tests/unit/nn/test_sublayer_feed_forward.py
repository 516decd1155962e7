"""Feed-forward networks against their formulas, in plain Python numbers where torch offers no twin."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from transduce.nn.sublayer import FEED_FORWARD, FeedForward, GatedFeedForward

DIM, INNER = 3, 5


def build(name: str) -> nn.Module:
    torch.manual_seed(7)
    return FEED_FORWARD[name](DIM, INNER).double()


def linear(weight: Tensor, bias: Tensor | None, value: list[float]) -> list[float]:
    rows = weight.tolist()
    offsets = [0.0] * len(rows) if bias is None else bias.tolist()
    return [sum(w * v for w, v in zip(row, value, strict=True)) + o for row, o in zip(rows, offsets, strict=True)]


def relu(value: float) -> float:
    return max(0.0, value)


def gelu(value: float) -> float:
    return value * 0.5 * (1 + math.erf(value / math.sqrt(2)))


def silu(value: float) -> float:
    return value / (1 + math.exp(-value))


@pytest.mark.parametrize(("name", "activation"), [("relu", relu), ("gelu", gelu)])
def test_a_plain_network_is_two_projections_with_an_activation_between(name: str, activation: object) -> None:
    network = build(name)
    assert isinstance(network, FeedForward)
    value = torch.randn(DIM, dtype=torch.float64)
    inner = [activation(x) for x in linear(network.up.weight, network.up.bias, value.tolist())]  # type: ignore[operator]
    expected = linear(network.down.weight, network.down.bias, inner)
    torch.testing.assert_close(network(value).tolist(), expected, rtol=0, atol=1e-12)


def test_the_first_half_of_a_gated_network_decides_how_much_of_the_second_passes() -> None:
    network = build("swiglu")
    assert isinstance(network, GatedFeedForward)
    value = torch.randn(DIM, dtype=torch.float64)
    both = linear(network.gate_up.weight, None, value.tolist())
    inner = [silu(gate) * passed for gate, passed in zip(both[:INNER], both[INNER:], strict=True)]
    torch.testing.assert_close(network(value).tolist(), linear(network.down.weight, None, inner), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_each_position_goes_its_own_way(name: str) -> None:
    network = build(name)
    value = torch.randn(2, 7, DIM, dtype=torch.float64)
    together = network(value)
    assert together.shape == value.shape
    torch.testing.assert_close(together[1, 4], network(value[1, 4]), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "count"), [("relu", 38), ("gelu", 38), ("swiglu", 45)])
def test_parameter_counts(name: str, count: int) -> None:
    """3·5 + 5 + 5·3 + 3 with biases; 3·10 + 5·3 without."""
    assert sum(parameter.numel() for parameter in build(name).parameters()) == count


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_dropout_inside_acts_in_training_only(name: str) -> None:
    network = FEED_FORWARD[name](DIM, 101, dropout=0.5)
    value = torch.randn(DIM)
    assert not torch.equal(network.train()(value), network(value))
    assert torch.equal(network.eval()(value), network(value))
