"""R-Drop's loss in one against its definition through torch's own functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from transduce.nn.cpu import cross_entropy
from transduce.nn.cpu.cross_entropy import linear_cross_entropy, paired_cross_entropy


@pytest.mark.parametrize("alpha", [0.0, 0.7, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 2 * 3 * 13, 10**6])
def test_values_and_gradients_are_those_of_the_definition(
    monkeypatch: pytest.MonkeyPatch, alpha: float, smoothing: float, with_bias: bool, chunk: int
) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", chunk)
    generator = torch.Generator().manual_seed(1)
    shapes = [(11, 5), (11, 5), (13, 5), (13,)]
    tensors = [torch.randn(s, generator=generator, dtype=torch.double, requires_grad=True) for s in shapes]
    first, second, weight, bias = tensors
    output = torch.randint(0, 13, (11,), generator=generator)
    used = bias if with_bias else None
    found = paired_cross_entropy((first, second), weight, used, output, smoothing, alpha)
    inputs = tensors[: 3 + with_bias]
    (3.0 * found.smoothed).backward()
    mine = [part.grad for part in inputs]
    logits = [F.linear(hidden, weight, used) for hidden in (first, second)]
    logs = [scores.log_softmax(-1) for scores in logits]
    entropy = sum(F.cross_entropy(s, output, label_smoothing=smoothing * 13 / 12, reduction="sum") for s in logits) / 2
    apart = [F.kl_div(a, b, reduction="sum", log_target=True) for a, b in (logs, logs[::-1])]
    expected = entropy + alpha / 4 * sum(apart)
    theirs = torch.autograd.grad(3.0 * expected, inputs)
    torch.testing.assert_close(found.smoothed, expected, rtol=0, atol=1e-10)
    plain = sum(F.cross_entropy(scores, output, reduction="sum") for scores in logits) / 2
    torch.testing.assert_close(found.plain, plain, rtol=0, atol=1e-10)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_two_equal_passes_are_one_pass() -> None:
    generator = torch.Generator().manual_seed(2)
    hidden, weight = torch.randn(7, 5, generator=generator), torch.randn(13, 5, generator=generator)
    output = torch.randint(0, 13, (7,), generator=generator)
    paired = paired_cross_entropy((hidden, hidden), weight, None, output, 0.1, alpha=5.0)
    assert float(paired.smoothed) == pytest.approx(float(linear_cross_entropy(hidden, weight, None, output, 0.1)[0]))
