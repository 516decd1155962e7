"""Memory of training: peaks by hand, the same gradients in every mode, and the verdict."""

from __future__ import annotations

import pytest
import torch

from transduce.experiments.training_memory import (
    MODES,
    PassCost,
    TrainingMemorySetting,
    checks,
    measure,
    peak_bytes,
)

SMALL = TrainingMemorySetting(
    width=16, num_heads=2, vocabulary=7, layers=(1, 2), rows=4, length=32, micro_batches=2, repeats=1
)


def test_the_peak_is_that_of_the_tensors_alive_at_once() -> None:
    def work() -> None:
        first = torch.zeros(1000)  # 4,000 bytes
        second = first + 1  # 8,000
        del first
        third = second.view(10, 100)  # no memory of its own
        del second
        torch.zeros(500)  # 4,000 + 2,000
        del third

    assert peak_bytes(work) == 8000


def test_every_mode_gives_the_same_gradients_with_less_memory() -> None:
    finding = measure(setting=SMALL)
    assert [row[:2] for row in finding.rows] == [(layers, mode) for layers in (1, 2) for mode in MODES]
    assert max(float(row[5]) for row in finding.rows) < 1e-4
    plain, checkpointing, accumulation, both = (float(row[2]) for row in finding.rows[4:])
    assert both < min(checkpointing, accumulation) and checkpointing < plain and accumulation < 0.6 * plain
    assert plain == pytest.approx(float(finding.rows[4][3]), rel=0.25)


def test_the_verdict_follows_the_costs() -> None:
    costs = {"plain": (100, 1.0), "checkpointing": (30, 1.3), "accumulation": (25, 1.0), "both": (10, 1.4)}
    found = {
        (layers, mode): PassCost(layers * peak, layers * peak, seconds, 0.0)
        for layers in (1, 2)
        for mode, (peak, seconds) in costs.items()
    }
    assert all(check.passed for check in checks(SMALL, found))
    found[2, "checkpointing"] = PassCost(60, 60, 2.0, 0.1)
    assert [check.passed for check in checks(SMALL, found)] == [True, True, True, True, False, True, False]
