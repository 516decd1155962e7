"""Gradients through time against closed forms: powers of a matrix, and torch's own Jacobians."""

from __future__ import annotations

import pytest
import torch

from transduce.experiments.gradients import (
    GradientSetting,
    attention,
    by_distance,
    by_product,
    gated_network,
    measure,
    plain_network,
)

SMALL = GradientSetting(dim=8, length=43, distances=(1, 7, 37), sequences=3, blocks=2)


def inputs(scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(3, 13, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.mark.parametrize("gain", [0.7, 1.3])
def test_where_tanh_is_a_line_the_gradient_is_a_power_of_the_matrix(gain: float) -> None:
    network = plain_network(gain, 8, seed=3)
    into, over = (getattr(network.layers[0], f"weight_{name}_l0") for name in ("ih", "hh"))
    expected = [torch.linalg.matrix_power(over, k) @ into for k in range(1, 12)]
    found = by_distance(lambda x: network(x)[0], inputs(1e-7), 11)
    torch.testing.assert_close(found, torch.stack([power.norm() for power in expected]))
    torch.testing.assert_close(found, into.norm() * gain ** torch.arange(1, 12, dtype=torch.float64))


def test_the_product_of_jacobians_is_the_gradient() -> None:
    network = plain_network(1.5, 8, seed=3)
    torch.testing.assert_close(by_product(network, inputs(), 11), by_distance(lambda x: network(x)[0], inputs(), 11))


@pytest.mark.parametrize("back", [1, 4, 11])
def test_norms_are_those_of_torch_s_jacobian(back: int) -> None:
    layer = attention(2, 8, seed=3)
    one = inputs()[:1]
    whole = torch.autograd.functional.jacobian(lambda x: layer(x)[0, -1], one)
    assert by_distance(layer, one, 11)[back - 1].item() == pytest.approx(whole[:, 0, 12 - back].norm().item())


@pytest.mark.parametrize("bias", [0.0, 5.0])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_bias_belongs_to_the_gate_that_keeps_the_state(cell: str, bias: float) -> None:
    """Without input, each step keeps sigmoid(bias) of the state."""
    network = gated_network(cell, 8, seed=3, open_bias=bias)  # type: ignore[arg-type]
    with torch.no_grad():
        for weight in ("weight_ih_l0", "weight_hh_l0"):
            getattr(network.layers[0], weight).zero_()
    given = tuple(torch.full((1, 3, 8), 0.5, dtype=torch.float64) for _ in range(network.num_carried))
    _, after = network(torch.zeros(3, 13, 8, dtype=torch.float64), given)
    torch.testing.assert_close(after[-1], given[-1] * torch.tensor(bias, dtype=torch.float64).sigmoid() ** 13)


def test_the_verdict_follows_the_numbers() -> None:
    finding = measure(setting=SMALL)
    assert [check.passed for check in finding.checks] == [True, True, False, False, False, True, True]
    steady = measure(
        setting=GradientSetting(dim=8, length=43, distances=(1, 37), sequences=3, blocks=2, gains=(1.0, 1.01, 1.02))
    )
    assert [check.passed for check in steady.checks[:3]] == [True, False, False]
