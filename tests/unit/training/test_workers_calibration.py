"""The number of threads is chosen by speed, and changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training.example import run, small_model, trainer
from tests.unit.training.test_trainer import same, snapshot
from transduce.data.prepared import Prepared
from transduce.training.workers import ROUNDS, WARM_UP, Calibration, Workers

SPEEDS = [({6: 10, 3: 30, 1: 20}, 3), ({6: 9, 3: 8, 1: 2}, 6), ({6: 1, 3: 1, 1: 5}, 1), ({6: 19, 3: 20, 1: 9}, 6)]


@pytest.mark.parametrize(("speeds", "best"), SPEEDS, ids=str)
def test_the_most_threads_that_are_as_fast_as_any_stay(prepared: Prepared, speeds: dict[int, int], best: int) -> None:
    workers = Workers(small_model(prepared), 6)
    calibration, tried = Calibration(workers), []
    updates = WARM_UP + 3 * ROUNDS
    for number in range(updates):
        tried.append(workers.active)
        slow = number < WARM_UP or number % 5 != 4  # most turns are disturbed
        done = calibration.observe(1000, (3 if slow else 1) * 1000 / speeds[workers.active])
        assert done is (number == updates - 1)
    assert tried == [6] * WARM_UP + [6, 3, 1] * ROUNDS
    assert workers.active == best
    assert not calibration.observe(1, 1.0)
    assert calibration.speeds == pytest.approx(speeds)


def test_one_thread_needs_no_trial(prepared: Prepared) -> None:
    workers = Workers(small_model(prepared), 1)
    assert not Calibration(workers).observe(1000, 1.0)
    assert workers.active == 1


def test_trying_does_not_change_the_run(prepared: Prepared, tmp_path: Path) -> None:
    one, four = (
        trainer(prepared, tmp_path / str(count), threads=count, micro_batch_tokens=31, updates=23) for count in (1, 4)
    )
    run(one)
    run(four)
    assert same(snapshot(one), snapshot(four))
    timing = (tmp_path / "4/timing.jsonl").read_text()
    assert '"event": "calibrated"' in timing
    assert '"event": "calibrated"' not in (tmp_path / "1/timing.jsonl").read_text()
