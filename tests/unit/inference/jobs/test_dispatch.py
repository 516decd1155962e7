"""Dispatch: whatever happens to workers, every block is translated, or one sentence says why not."""

from __future__ import annotations

import random

import pytest

from transduce.errors import TransduceError
from transduce.inference.jobs.dispatch import MAX_FAILED_STARTS, MAX_LOSSES, Event, WorkerError, dispatch


class Fake:
    """A cluster in which events happen in random order; some workers are lost, and some blocks are busy at first."""

    def __init__(self, seed: int = 1, losses: float = 0.0, busy: int = 0) -> None:
        self._draw, self._losses, self._busy_left = random.Random(seed), losses, busy
        self.started = 0
        self.events: list[Event] = []
        self.done: list[int] = []
        self.idle: set[int] = set()

    def start(self) -> int:
        self.started += 1
        self._happen(self.started, Event(self.started, "ready"))
        return self.started

    def translate(self, worker: int, block: int) -> None:
        assert worker in self.idle, "a worker that is not ready, is busy or is lost"
        self.idle.remove(worker)
        if self._busy_left and block % 2:
            self._busy_left -= 1
            self.events.append(Event(worker, "failed", code=75, message="busy"))
        elif self._happen(worker, Event(worker, "done", lines=10)):
            self.done.append(block)

    def wait(self, seconds: float) -> list[Event]:
        if not self.events:
            return []
        event = self.events.pop(self._draw.randrange(len(self.events)))
        if event.kind != "lost":
            self.idle.add(event.worker)
        return [event]

    def _happen(self, worker: int, event: Event) -> bool:
        lost = self._draw.random() < self._losses
        self.events.append(Event(worker, "lost", message="its node died") if lost else event)
        return not lost


class Seen:
    """What was reported."""

    def __init__(self) -> None:
        self.lines = self.losses = self.waits = 0

    def finished(self, lines: int) -> None:
        self.lines += lines

    def lost(self, message: str) -> None:
        self.losses += 1

    def waiting(self, working: int, starting: int) -> None:
        self.waits += 1


@pytest.mark.parametrize("seed", range(5))
def test_every_block_is_translated_once_though_workers_are_lost(seed: int) -> None:
    cluster, seen = Fake(seed, losses=0.15, busy=3), Seen()
    dispatch(cluster, range(50), 4, seen)
    assert sorted(cluster.done) == list(range(50))
    assert seen.lines == 500 and seen.losses > 0
    assert cluster.started == 4 + seen.losses


def test_there_are_no_more_workers_than_blocks() -> None:
    cluster = Fake()
    dispatch(cluster, range(2), 10, Seen())
    assert cluster.started == 2
    dispatch(cluster, [], 10, Seen())
    assert cluster.started == 2


def test_a_block_that_another_process_translates_is_tried_again_after_a_pause() -> None:
    cluster, seen = Fake(busy=2), Seen()
    dispatch(cluster, [1], 1, seen)
    assert cluster.done == [1] and seen.waits >= 2


def test_an_error_of_a_worker_ends_it_with_its_sentence_and_code() -> None:
    cluster = Fake()
    cluster.translate = lambda worker, block: cluster.events.append(  # type: ignore[method-assign]
        Event(worker, "failed", code=65, message="node-3: x: lines 1 to 9 are not what they were")
    )
    with pytest.raises(WorkerError, match="node-3: x: lines 1 to 9") as caught:
        dispatch(cluster, range(3), 1, Seen())
    assert caught.value.exit_code == 65


def test_a_block_that_ends_every_worker_and_workers_that_never_start_are_errors() -> None:
    cluster = Fake()
    cluster.translate = lambda worker, block: cluster.events.append(  # type: ignore[method-assign]
        Event(worker, "lost", message="out of memory")
    )
    with pytest.raises(TransduceError, match=r"block 7 crashed 6 workers.*out of memory"):
        dispatch(cluster, [7], 1, Seen())
    assert cluster.started == MAX_LOSSES + 1
    cluster = Fake(losses=1.0)
    with pytest.raises(TransduceError, match="no worker can be started: its node died"):
        dispatch(cluster, range(5), 2, Seen())
    assert cluster.started == 2 + MAX_FAILED_STARTS
