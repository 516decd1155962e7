"""Gradients from several threads: the same sum in any order of arrival, and nobody waits for what will not come."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import nn

from transduce.training import step as gradient_sum
from transduce.training.step import GradientSum


@pytest.fixture(params=[1, 10, 10**6], autouse=True)
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """All parameters are large, some, or none."""
    monkeypatch.setattr(gradient_sum, "LARGE", request.param)
    return int(request.param)


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))


def backward(twin: nn.Module, total: GradientSum, number: int, delay: float) -> None:
    time.sleep(delay)
    total.expect(twin, number)
    generator = torch.Generator().manual_seed(number)
    (twin(torch.randn(7, 3, generator=generator)) ** 2).sum().backward()


def compute(twin: nn.Module, total: GradientSum, number: int, delay: float, done: list[threading.Event]) -> None:
    """A slice from its beginning to its end, as a worker does it: slices are finished in order."""
    backward(twin, total, number, delay)
    if number:
        done[number - 1].wait(30)
    total.finish(twin, number)
    done[number].set()


@pytest.mark.parametrize("delays", [[0.0, 0.02, 0.04], [0.04, 0.02, 0.0], [0.0, 0.0, 0.0]], ids=str)
def test_the_sum_is_that_of_one_thread_bit_by_bit(delays: list[float]) -> None:
    alone, together = model(), model()
    twins = [model() for _ in delays]
    total = GradientSum(together, twins)
    total.begin()
    done = [threading.Event() for _ in delays]
    threads = [
        threading.Thread(target=compute, args=(twin, total, number, delay, done))
        for number, (twin, delay) in enumerate(zip(twins, delays, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    plain = GradientSum(alone, [])
    plain.begin()
    for number in range(len(delays)):
        backward(alone, plain, number, 0.0)
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    assert all(parameter.grad is None for twin in twins for parameter in twin.parameters())


def test_a_slice_that_failed_lets_the_others_go(large: int) -> None:
    if large > 15:
        return  # nothing waits in a backward pass
    together, twin = model(), model()
    total = GradientSum(together, [twin])
    total.begin()
    waiting = threading.Thread(target=backward, args=(twin, total, 1, 0.0))
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive(), "slice 0 has not come"
    total.abandon()
    waiting.join(timeout=30)
    assert not waiting.is_alive()


def test_a_parameter_without_a_gradient_keeps_nobody_waiting(large: int) -> None:
    """Slice 0 uses the first layer alone; slice 1 uses both and must not wait for slice 0's second."""
    if large > 10:
        return
    together, twins = model(), [model(), model()]
    total = GradientSum(together, twins)
    total.begin()
    total.expect(twins[0], 0)
    twins[0][0](torch.ones(1, 3)).sum().backward()
    waiting = threading.Thread(target=backward, args=(twins[1], total, 1, 0.0))
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive()
    total.finish(twins[0], 0)
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    total.finish(twins[1], 1)
    assert all(parameter.grad is not None for parameter in together.parameters())
