"""The same weights on both devices: losses, gradients and decoding steps agree but for rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.invariants.cases import CASES, Case, make_model
from tests.invariants.gpu_walk import pairs
from transduce.models.interface import AnyTransducer
from transduce.nn.cpu.cross_entropy import linear_cross_entropy, paired_cross_entropy
from transduce.tasks.transducer import transducer_loss


def gradients(model: AnyTransducer, device: str) -> tuple[float, dict[str, torch.Tensor]]:
    model = model.to(device).eval()  # without dropout, whose masks differ by device
    model.zero_grad(set_to_none=True)
    side = model.image_size
    batch = pairs(3, side * side if side else 7, 5).to(device)
    loss = transducer_loss(model, batch, smoothing=0.1).smoothed
    loss.backward()  # type: ignore[no-untyped-call]
    found = {name: one.grad.cpu() for name, one in model.named_parameters() if one.grad is not None}
    return float(loss.detach()), found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_loss_and_gradients_are_those_of_the_cpu(case: Case) -> None:
    model = make_model(case).double()
    loss, expected = gradients(model, "cpu")
    on_gpu, found = gradients(model, "cuda")
    assert on_gpu == pytest.approx(loss, rel=1e-9)
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-6, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_decoding_steps_are_those_of_the_cpu(case: Case) -> None:
    model: Any = make_model(case).double().eval()
    scores = {}
    for device in ("cpu", "cuda"):
        model.to(device)
        side = model.image_size
        batch = pairs(3, side * side if side else 7, 1).to(device)
        with torch.inference_mode():
            state = model.start(model.encode(batch.source, batch.source_allowed), 2)
            for _ in range(3):
                hidden, state = model.step(torch.full((6,), 7, device=device), state)
            scores[device] = model.logits(hidden).cpu()
    torch.testing.assert_close(scores["cuda"], scores["cpu"], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("paired", [False, True])
def test_the_bfloat16_loss_is_near_that_in_float64(paired: bool) -> None:
    torch.manual_seed(1)
    hidden, weight = torch.randn(997, 64), torch.randn(4099, 64) / 8
    output = torch.randint(0, 4099, (997,))
    found = {}
    for device, dtype in (("cpu", torch.double), ("cuda", torch.float32)):
        own, matrix = (one.to(device, dtype).requires_grad_() for one in (hidden, weight))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            true = output.to(device)
            if paired:
                loss = paired_cross_entropy((own, own * 0.9), matrix, None, true, 0.1, 2.0).smoothed
            else:
                loss = linear_cross_entropy(own, matrix, None, true, 0.1).smoothed
        loss.backward()  # type: ignore[no-untyped-call]
        assert own.grad is not None and matrix.grad is not None
        found[device] = float(loss.detach()), own.grad.cpu().double(), matrix.grad.cpu().double()
    assert found["cuda"][0] == pytest.approx(found["cpu"][0], rel=1e-2)
    for mine, true in zip(found["cuda"][1:], found["cpu"][1:], strict=True):
        assert float((mine - true).norm() / true.norm()) < 0.03
