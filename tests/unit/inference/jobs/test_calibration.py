"""The fastest choice is found with few trials, by a clock that the test holds; what cannot be told apart stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tests.unit.copy_translator import WORDS_OF_TEXT, copier
from transduce.inference.ctranslate2.engine import Parallelism
from transduce.inference.jobs import calibration
from transduce.inference.jobs.calibration import (
    BATCH_SIZES,
    MAX_SECONDS,
    MIN_JOB_SECONDS,
    apply_parallelism,
    calibrate,
    calibrate_job,
    parallelism_choices,
    requested_parallelism,
)
from transduce.inference.jobs.job import CTRANSLATE2_WINDOW, TORCH_WINDOW, JobOptions, TranslationJob, window_lines

SAMPLE = ["some words"] * 4096
MANY = 10_000_000


class Machine:
    """Translates so many lines per second with each choice, half as many again where the batch suits it."""

    def __init__(self, speeds: dict[tuple[int, int], float], best_batch: int = 32) -> None:
        self._speeds, self._best_batch = speeds, best_batch
        self.tried: list[tuple[Parallelism, int]] = []

    def __call__(self, choice: Parallelism, lines: Sequence[str]) -> float:
        self.tried.append((choice, len(lines)))
        speed = self._speeds[choice.workers, choice.threads]
        return len(lines) / (1.5 * speed if choice.batch_size == self._best_batch else speed)


def test_the_ways_are_all_that_use_every_core_the_usual_one_first() -> None:
    assert parallelism_choices(Parallelism(2), ctranslate2=True) == [Parallelism(2, 1), Parallelism(1, 2)]
    assert parallelism_choices(Parallelism(12), ctranslate2=True) == [
        Parallelism(12, 1),
        Parallelism(6, 2),
        Parallelism(4, 3),
        Parallelism(3, 4),
        Parallelism(2, 6),
        Parallelism(1, 12),
    ]
    assert parallelism_choices(Parallelism(1), ctranslate2=True) == [Parallelism(1, 1)]
    assert parallelism_choices(Parallelism(1, 8), ctranslate2=False) == [Parallelism(1, 8), Parallelism(1, 1)]
    assert parallelism_choices(Parallelism(1, 1), ctranslate2=False) == [Parallelism(1, 1)]


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
    assert calibrate(SAMPLE, MANY, parallelism_choices(Parallelism(4), ctranslate2=True), BATCH_SIZES, machine) == (
        Parallelism(*best, batch),
        True,
    )


def test_something_soon_done_is_not_tried_out() -> None:
    machine = Machine({(2, 1): 100, (1, 2): 10_000})
    lines = int(MIN_JOB_SECONDS * 100 / 2)
    assert calibrate(SAMPLE, lines, parallelism_choices(Parallelism(2), ctranslate2=True), BATCH_SIZES, machine) == (
        Parallelism(2),
        False,
    )
    assert machine.tried == [(Parallelism(2, 1, 1), 2)]
    assert calibrate([], MANY, parallelism_choices(Parallelism(2), ctranslate2=True), BATCH_SIZES, machine) == (
        Parallelism(2),
        False,
    )
    assert calibrate(SAMPLE, MANY, [Parallelism(1, 1)], (), machine) == (Parallelism(1, 1), False)


def test_trials_are_long_enough_to_count_and_few_enough_to_be_short() -> None:
    """Every worker has something to do in each; a slow model is tried on few lines, in small batches."""
    slow = Machine({(4, 1): 3, (2, 2): 2, (1, 4): 1})
    calibrate(SAMPLE, MANY, parallelism_choices(Parallelism(4), ctranslate2=True), BATCH_SIZES, slow)
    assert slow.tried == [(Parallelism(4, 1, 1), 4), (Parallelism(2, 2, 2), 4), (Parallelism(1, 4, 4), 4)]
    quick = Machine({(4, 1): 30_000, (2, 2): 20_000, (1, 4): 16_000})
    calibrate(SAMPLE, MANY, parallelism_choices(Parallelism(4), ctranslate2=True), BATCH_SIZES, quick)
    assert [count for _, count in quick.tried[-9:]] == [4096] + [512, 4096] * 4


def test_what_is_far_slower_is_given_up_after_a_short_trial() -> None:
    machine = Machine({(4, 1): 2000, (2, 2): 200, (1, 4): 200})
    assert calibrate(SAMPLE, MANY, parallelism_choices(Parallelism(4), ctranslate2=True), (), machine) == (
        Parallelism(4),
        True,
    )
    assert machine.tried[-3:] == [(Parallelism(4), 2048), (Parallelism(2, 2), 256), (Parallelism(1, 4), 256)]


def test_no_trial_begins_when_the_time_is_used_up() -> None:
    endless = Machine({(4, 1): 4 / (MAX_SECONDS + 1), (2, 2): 100, (1, 4): 100}, best_batch=7)
    assert calibrate(SAMPLE, MANY, parallelism_choices(Parallelism(4), ctranslate2=True), BATCH_SIZES, endless) == (
        Parallelism(4),
        True,
    )
    assert len(endless.tried) == 1


def test_requested_parallelism_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "available_cores", lambda: 8)
    assert requested_parallelism(True, 3, 5) == Parallelism(3, 5)
    assert requested_parallelism(True, 2, None) == Parallelism(2, 4)
    assert requested_parallelism(True, None, 2) == Parallelism(4, 2)
    assert requested_parallelism(True, 16, None) == Parallelism(16, 1)
    assert requested_parallelism(False, None, 3) == Parallelism(1, 3)


def test_a_window_has_work_for_all_workers_and_is_not_too_long() -> None:
    assert window_lines(Parallelism(2), ctranslate2=True) == 2048
    assert window_lines(Parallelism(1, 1, 32), ctranslate2=True) == CTRANSLATE2_WINDOW[0]
    assert window_lines(Parallelism(64), ctranslate2=True) == CTRANSLATE2_WINDOW[1]
    assert window_lines(Parallelism(1, 64), ctranslate2=False) == TORCH_WINDOW


def test_torch_is_tried_with_one_thread_and_with_all() -> None:
    """The clock says that one thread is faster; what is answered while trying is not counted."""
    before = torch.get_num_threads()
    translator = copier("word", method="greedy")
    job = TranslationJob.of(translator, JobOptions(engine="torch"))
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0 if torch.get_num_threads() == 1 else 3.0
        return now

    try:
        torch.set_num_threads(2)
        assert calibrate_job(job, WORDS_OF_TEXT, MANY, clock) == (Parallelism(1, 1), True)
        assert torch.get_num_threads() == 1
        apply_parallelism(job, Parallelism(1, 2))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert translator.counts.lines == 0
