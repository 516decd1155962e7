"""The fastest pace is found with few trials, by a clock that the test holds; what cannot be told apart stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tests.unit.copier import WORDS_OF_TEXT, copier
from transduce.inference.jobs import calibration
from transduce.inference.jobs.calibration import (
    BATCHES,
    BUDGET,
    WORTH,
    calibrate,
    found_pace,
    set_pace,
    ways,
    wished_pace,
)
from transduce.inference.jobs.job import FAST_LINES, SLOW_LINES, window_lines
from transduce.inference.jobs.window import Answering
from transduce.inference.pace import Pace

SAMPLE = ["some words"] * 4096
MANY = 10_000_000


class Machine:
    """Translates so many lines per second at each pace, half as many again where the batch suits it."""

    def __init__(self, speeds: dict[tuple[int, int], float], best_batch: int = 32) -> None:
        self._speeds, self._best_batch = speeds, best_batch
        self.tried: list[tuple[Pace, int]] = []

    def __call__(self, pace: Pace, lines: Sequence[str]) -> float:
        self.tried.append((pace, len(lines)))
        speed = self._speeds[pace.workers, pace.threads]
        return len(lines) / (1.5 * speed if pace.batch == self._best_batch else speed)


def test_the_ways_are_all_that_use_every_core_the_usual_one_first() -> None:
    assert ways(Pace(2), fast=True) == [Pace(2, 1), Pace(1, 2)]
    assert ways(Pace(12), fast=True) == [Pace(12, 1), Pace(6, 2), Pace(4, 3), Pace(3, 4), Pace(2, 6), Pace(1, 12)]
    assert ways(Pace(1), fast=True) == [Pace(1, 1)]
    assert ways(Pace(1, 8), fast=False) == [Pace(1, 8), Pace(1, 1)]
    assert ways(Pace(1, 1), fast=False) == [Pace(1, 1)]


@pytest.mark.parametrize(
    ("speeds", "best"),
    [
        ({(4, 1): 900, (2, 2): 700, (1, 4): 100}, (4, 1)),
        ({(4, 1): 300, (2, 2): 700, (1, 4): 100}, (2, 2)),
        ({(4, 1): 300, (2, 2): 700, (1, 4): 900}, (1, 4)),
        ({(4, 1): 950, (2, 2): 1000, (1, 4): 100}, (4, 1)),  # too near to be told apart
    ],
)
@pytest.mark.parametrize("batch", [32, 64, 128])
def test_the_fastest_is_taken(speeds: dict[tuple[int, int], float], best: tuple[int, int], batch: int) -> None:
    machine = Machine({way: 2 * speed for way, speed in speeds.items()}, batch)
    assert calibrate(SAMPLE, MANY, ways(Pace(4), fast=True), BATCHES, machine) == (Pace(*best, batch), True)


def test_something_soon_done_is_not_tried_out() -> None:
    machine = Machine({(2, 1): 100, (1, 2): 10_000})
    lines = int(WORTH * 100 / 2)
    assert calibrate(SAMPLE, lines, ways(Pace(2), fast=True), BATCHES, machine) == (Pace(2), False)
    assert machine.tried == [(Pace(2, 1, 1), 2)]
    assert calibrate([], MANY, ways(Pace(2), fast=True), BATCHES, machine) == (Pace(2), False)
    assert calibrate(SAMPLE, MANY, [Pace(1, 1)], (), machine) == (Pace(1, 1), False)


def test_trials_are_long_enough_to_count_and_few_enough_to_be_short() -> None:
    """Every worker has something to do in each; a slow model is tried on few lines, in small batches."""
    slow = Machine({(4, 1): 3, (2, 2): 2, (1, 4): 1})
    calibrate(SAMPLE, MANY, ways(Pace(4), fast=True), BATCHES, slow)
    assert slow.tried == [(Pace(4, 1, 1), 4), (Pace(2, 2, 2), 4), (Pace(1, 4, 4), 4)]
    quick = Machine({(4, 1): 30_000, (2, 2): 20_000, (1, 4): 16_000})
    calibrate(SAMPLE, MANY, ways(Pace(4), fast=True), BATCHES, quick)
    assert [count for _, count in quick.tried[-9:]] == [4096] + [512, 4096] * 4


def test_what_is_far_slower_is_given_up_after_a_glance() -> None:
    machine = Machine({(4, 1): 2000, (2, 2): 200, (1, 4): 200})
    assert calibrate(SAMPLE, MANY, ways(Pace(4), fast=True), (), machine) == (Pace(4), True)
    assert machine.tried[-3:] == [(Pace(4), 2048), (Pace(2, 2), 256), (Pace(1, 4), 256)]


def test_no_trial_begins_when_the_time_is_used_up() -> None:
    endless = Machine({(4, 1): 4 / (BUDGET + 1), (2, 2): 100, (1, 4): 100}, best_batch=7)
    assert calibrate(SAMPLE, MANY, ways(Pace(4), fast=True), BATCHES, endless) == (Pace(4), True)
    assert len(endless.tried) == 1


def test_what_was_asked_for_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "cores", lambda: 8)
    assert wished_pace(True, 3, 5) == Pace(3, 5)
    assert wished_pace(True, 2, None) == Pace(2, 4)
    assert wished_pace(True, None, 2) == Pace(4, 2)
    assert wished_pace(True, 16, None) == Pace(16, 1)
    assert wished_pace(False, None, 3) == Pace(1, 3)


def test_a_window_has_work_for_all_workers_and_is_not_too_long() -> None:
    assert window_lines(Pace(2), fast=True) == 2048
    assert window_lines(Pace(1, 1, 32), fast=True) == FAST_LINES[0]
    assert window_lines(Pace(64), fast=True) == FAST_LINES[1]
    assert window_lines(Pace(1, 64), fast=False) == SLOW_LINES


def test_torch_is_tried_with_one_thread_and_with_all() -> None:
    """The clock says that one thread is faster; what is answered while trying is not counted."""
    before = torch.get_num_threads()
    translator = copier("word", method="greedy")
    answering = Answering(translator, translator.options(), translator.constraints())
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0 if torch.get_num_threads() == 1 else 3.0
        return now

    try:
        torch.set_num_threads(2)
        assert found_pace(answering, WORDS_OF_TEXT, MANY, clock) == (Pace(1, 1), True)
        assert torch.get_num_threads() == 1
        set_pace(answering, Pace(1, 2))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert translator.counts.lines == 0
