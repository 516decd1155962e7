"""Dropout against its definition: a share of zeros, the rest scaled, the mean kept."""

from __future__ import annotations

import pytest
import torch

from transduce.nn.dropout import Dropout


def test_nothing_is_dropped_outside_training() -> None:
    value = torch.randn(3, 5)
    assert Dropout(0.7).eval()(value) is value


def test_a_rate_of_nothing_drops_nothing() -> None:
    value = torch.randn(3, 5)
    assert Dropout(0.0).train()(value) is value


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_what_stays_is_scaled_so_that_the_mean_stays(rate: float) -> None:
    torch.manual_seed(11)
    dropped = Dropout(rate).train()(torch.ones(100_003))
    scale = torch.tensor(1 / (1 - rate))
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], scale.expand(int(kept.sum())))
    assert float(kept.float().mean()) == pytest.approx(1 - rate, abs=0.01)


def test_a_gradient_passes_where_the_value_did() -> None:
    value = torch.ones(1009, requires_grad=True)
    dropped = Dropout(0.3).train()(value)
    dropped.sum().backward()
    assert value.grad is not None
    assert torch.equal(value.grad, dropped.detach())


def test_what_it_prints_says_its_rate() -> None:
    assert repr(Dropout(0.25)) == "Dropout(rate=0.25)"
