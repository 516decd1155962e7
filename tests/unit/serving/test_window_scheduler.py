"""Batches of whatever waits: alike works together, and a work that fails fails alone."""

from __future__ import annotations

import threading
import time

import pytest

from transduce.serving import window_scheduler
from transduce.serving.fair_queue import Ticket
from transduce.serving.job import JobError
from transduce.serving.window_scheduler import MAX_WINDOW, WindowScheduler

PATIENCE = 30.0


class Batches:
    """Doubles numbers and records the batches; a negative number fails, and all wait for the gate."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.gate = threading.Event()

    def __call__(self, works: list[int]) -> list[int]:
        assert self.gate.wait(PATIENCE)
        self.seen.append(list(works))
        if any(work < 0 for work in works):
            raise ValueError("negative")
        return [2 * work for work in works]


def scheduler_of(batches: Batches, workers: int = 1) -> WindowScheduler[int]:
    return WindowScheduler(
        batches, cost=abs, kind=lambda work: work % 2, tokens=lambda work, found: (work, found), workers=workers
    )


def submit(scheduler: WindowScheduler[int], *works: int, seconds: float = 60.0) -> list[Ticket[int]]:
    return scheduler.submit(works, "somebody", time.monotonic() + seconds)


def test_what_waits_is_computed_together_by_kind_and_length() -> None:
    batches = Batches()
    scheduler = scheduler_of(batches)
    first = submit(scheduler, 3)
    while scheduler.statistics().active == 0:
        time.sleep(0.001)
    others = submit(scheduler, 10, 12, 11, 100, 14, 102, 13)
    batches.gate.set()
    assert [ticket.future.result(PATIENCE) for ticket in first + others] == [6, 20, 24, 22, 200, 28, 204, 26]
    scheduler.close()
    assert batches.seen == [[3], [10, 12, 14], [11, 13], [100, 102]]
    counters = scheduler.statistics()
    assert (counters.encoded_tokens, counters.written_tokens) == (265, 530)


def test_a_work_that_fails_fails_alone() -> None:
    batches = Batches()
    scheduler = scheduler_of(batches)
    tickets = submit(scheduler, *[20 + 2 * (number % 5) for number in range(20)], -22)
    batches.gate.set()
    for ticket in tickets[:-1]:
        assert ticket.future.result(PATIENCE) == 2 * ticket.work
    with pytest.raises(ValueError, match="negative"):
        tickets[-1].future.result(PATIENCE)
    scheduler.close()


def test_windows_are_bounded() -> None:
    batches = Batches()
    scheduler = scheduler_of(batches, workers=2)
    tickets = submit(scheduler, *[10] * 100)
    batches.gate.set()
    for ticket in tickets:
        assert ticket.future.result(PATIENCE) == 20
    scheduler.close()
    assert max(map(len, batches.seen)) <= MAX_WINDOW


def test_what_is_cancelled_or_late_is_not_computed() -> None:
    batches = Batches()
    scheduler = scheduler_of(batches)
    submit(scheduler, 3)
    while scheduler.statistics().active == 0:
        time.sleep(0.001)
    (cancelled,) = submit(scheduler, 10)
    (late,) = submit(scheduler, 12, seconds=0.0)
    (kept,) = submit(scheduler, 14)
    scheduler.cancel([cancelled])
    batches.gate.set()
    assert kept.future.result(PATIENCE) == 28
    with pytest.raises(JobError, match="in time"):
        late.future.result(PATIENCE)
    scheduler.close()
    assert cancelled.future.cancelled() and batches.seen == [[3], [14]]


def test_a_worker_waits_for_enough_while_another_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_scheduler, "GATHER", PATIENCE)
    monkeypatch.setattr(window_scheduler, "ENOUGH", 3)
    batches = Batches()
    scheduler = scheduler_of(batches, workers=2)
    tickets = submit(scheduler, 11)
    while scheduler.statistics().active == 0:
        time.sleep(0.001)
    for work in (10, 12, 14):
        tickets += submit(scheduler, work)
    while scheduler.statistics().active < 4:
        time.sleep(0.001)
    batches.gate.set()
    assert [ticket.future.result(PATIENCE) for ticket in tickets] == [22, 20, 24, 28]
    scheduler.close()
    assert sorted(batches.seen) == [[10, 12, 14], [11]]


def test_a_worker_waits_no_longer_when_the_other_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_scheduler, "GATHER", PATIENCE)
    batches = Batches()
    scheduler = scheduler_of(batches, workers=2)
    first = submit(scheduler, 11)
    while scheduler.statistics().active == 0:
        time.sleep(0.001)
    second = submit(scheduler, 10)
    batches.gate.set()
    began = time.monotonic()
    assert [ticket.future.result(PATIENCE) for ticket in first + second] == [22, 20]
    assert time.monotonic() - began < PATIENCE / 2
    scheduler.close()
