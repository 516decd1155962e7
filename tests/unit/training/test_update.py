"""Updates decided on the device, tried on the CPU: the same numbers, read later; what is not finite is skipped."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.training.example import Listener, resumed, run, same, snapshot, trainer
from transduce.data.prepared import Prepared
from transduce.storage.journal import read_journal
from transduce.training import step
from transduce.training.interruption import Interrupted, Interruption
from transduce.training.muon import BUFFER, Muon, orthogonalised, orthogonalised_together
from transduce.training.trainer import Trainer
from transduce.training.update import DeviceUpdate, QueuedResult, StepResult, read


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        step, "build_update", lambda model, optimizer, config, _: DeviceUpdate(model, optimizer, config)
    )


CHANGES: list[dict[str, Any]] = [{"max_grad_norm": 0.3, "gradient_noise": 0.01, "ema_decay": 0.9}, {"optimizer": "sgd"}]


@pytest.mark.parametrize("changes", CHANGES, ids=["adam", "sgd"])
def test_a_run_decided_on_the_device_is_the_run_decided_on_the_host(
    prepared: Prepared, tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and norms are summed in another precision there: all but the last digits of float32 are the same."""
    host = trainer(prepared, tmp_path / "host", **changes)
    told = run(host)
    monkeypatch.setattr(
        step, "build_update", lambda model, optimizer, config, _: DeviceUpdate(model, optimizer, config)
    )
    device = trainer(prepared, tmp_path / "device", **changes)
    heard = run(device)
    assert [one.update for one in heard.steps] == list(range(1, 18))
    for mine, other in zip(heard.steps, told.steps, strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-5)
        assert mine.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-4)
    for name, weight in snapshot(device).items():
        torch.testing.assert_close(weight, snapshot(host)[name], rtol=1e-3, atol=1e-5)
    events = [
        [line["event"] for line in read_journal(tmp_path / where / "journal.jsonl")] for where in ("host", "device")
    ]
    assert events[0] == events[1]


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("stop", [4, 6])
def test_such_a_run_resumes_to_the_same_bits_wherever_it_stops(prepared: Prepared, tmp_path: Path, stop: int) -> None:
    """Also where updates were not read yet, between two logged ones."""
    whole = trainer(prepared, tmp_path / "whole")
    run(whole)
    parts, interruption = trainer(prepared, tmp_path / "parts"), Interruption()
    update = parts._update

    def stopping(*arguments: Any) -> None:
        update(*arguments)
        interruption.wanted = 2 if parts.progress.update == stop else None

    parts._update = stopping  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        run(parts, Listener(), interruption)
    assert parts.progress.update == stop
    last, _ = resumed(prepared, tmp_path / "parts")
    assert same(snapshot(last), snapshot(whole))
    assert (tmp_path / "parts/journal.jsonl").read_bytes() == (tmp_path / "whole/journal.jsonl").read_bytes()


def poisoned(training: Trainer, update: int, value: float) -> None:
    """Make the gradient of one update not finite, and keep the state before and after it."""
    inner, moments = training.train_step.update, []

    class Poisoned(DeviceUpdate):
        def __call__(self, loss: Tensor, tokens: int, number: int, rate: float) -> QueuedResult:
            if number == update:
                next(one for one in self.model.parameters() if one.grad is not None).grad.view(-1)[0] = value  # type: ignore[union-attr]
                moments.append(snapshot(training))
            found = super().__call__(loss, tokens, number, rate)
            if number == update:
                moments.append(snapshot(training))
                assert same(moments[0], moments[1])
            return found

    training.train_step.update = Poisoned(inner.model, inner.optimizer, inner.config)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize(("optimizer", "value"), [("adam", math.nan), ("adamw", math.inf), ("sgd", math.nan)])
def test_an_update_that_is_not_finite_changes_nothing_and_is_reported_at_the_next_logged_step(
    prepared: Prepared, tmp_path: Path, optimizer: str, value: float
) -> None:
    training = trainer(prepared, tmp_path, optimizer=optimizer, max_grad_norm=1.0)
    poisoned(training, 7, value)
    heard = run(training)
    assert training.progress.skipped == 1
    assert [line["update"] for line in read_journal(tmp_path / "journal.jsonl") if line["event"] == "skipped"] == [7]
    assert any("skipped update 7" in warning for warning in heard.warnings)


@pytest.mark.usefixtures("on_device")
def test_a_run_without_finite_gradients_fails_as_it_does_on_the_host(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceUpdate, "loss", lambda _, smoothed, weight: weight * smoothed * math.nan)
    with pytest.raises(Exception, match="not finite 10 updates in a row"):
        run(trainer(prepared, tmp_path), Listener())


def test_results_are_read_together_and_in_order() -> None:
    queued = [QueuedResult(torch.tensor([float(n), 2.0 * n]), n) for n in (1, 2)]
    bad = QueuedResult(torch.tensor([1.0, math.nan]), 3)
    host = StepResult(5.0, 4, 6.0, True)
    first, between, second, third = read([queued[0], host, queued[1], bad])
    assert (first, between, second) == (StepResult(1.0, 1, 2.0, True), host, StepResult(2.0, 2, 4.0, True))
    assert not third.finite


# Muon on a device: matrices of one shape together.


def test_matrices_are_orthogonalised_together_as_one_by_one() -> None:
    torch.manual_seed(1)
    matrices = [torch.randn(shape) for shape in [(7, 11), (11, 7), (7, 11), (5, 5)]]
    for found, matrix in zip(orthogonalised_together(matrices, half=False), matrices, strict=True):
        torch.testing.assert_close(found, orthogonalised(matrix), rtol=1e-4, atol=1e-5)
    for found in orthogonalised_together(matrices, half=True):
        assert found.dtype == torch.float32
        assert torch.linalg.svdvals(found).sub(1).abs().max() < 0.5


def test_muon_on_a_device_makes_the_steps_of_the_cpu_and_skips(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"optimizer": "muon", "weight_decay": 0.1}
    host = trainer(prepared, tmp_path / "host", **changes)
    run(host)
    monkeypatch.setattr(
        step, "build_update", lambda model, optimizer, config, _: DeviceUpdate(model, optimizer, config)
    )
    monkeypatch.setattr(Muon, "_on_device", lambda _, used: bool(used))
    device = trainer(prepared, tmp_path / "device", **changes)
    run(device)
    for name, weight in snapshot(device).items():
        torch.testing.assert_close(weight, snapshot(host)[name], rtol=1e-2, atol=1e-3)
    skipping = trainer(prepared, tmp_path / "skipping", **changes)
    poisoned(skipping, 7, math.nan)
    run(skipping)
    assert skipping.progress.skipped == 1
    assert all(
        state[BUFFER].isfinite().all() for state in skipping.train_step.optimizer.state.values() if BUFFER in state
    )
