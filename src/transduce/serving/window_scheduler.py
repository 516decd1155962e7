"""Batches of whatever waits, for engines that take a whole batch at a time: CTranslate2 and text encoders.

A worker that is free takes the next ticket and others that can share its batch: of the same kind and of similar
length. Nothing can join or leave a batch that runs; that is all that these engines allow. While another worker
computes, a free one waits a moment for more tickets: a batch of few costs more for each. An idle server does not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from transduce.errors import as_exception
from transduce.serving.fair_queue import Ticket, WorkT, deadline_error
from transduce.serving.scheduler import Capacity, Scheduler, is_over

MAX_WINDOW = 32
"""Tickets of one batch."""
ENOUGH = 16
"""Tickets that a worker does not wait to be more, while another one computes …"""
GATHER = 0.01
"""… or after so many seconds."""
SIMILAR = 2.0
"""How many times as long as the first ticket another one of its batch may be, and how many times as short."""


class WindowScheduler(Scheduler[WorkT]):
    """Threads that each run one batch at a time."""

    def __init__(
        self,
        run: Callable[[list[WorkT]], Sequence[Any]],
        cost: Callable[[WorkT], int],
        kind: Callable[[WorkT], Hashable],
        tokens: Callable[[WorkT, Any], tuple[int, int]],
        capacity: Capacity | None = None,
        workers: int = 1,
    ) -> None:
        """`run` computes the results of works of the same `kind`; several threads may call it at a time.

        `tokens` is how many were read and written for a work and its result.
        """
        super().__init__(capacity or Capacity(), workers)
        self._compute, self._cost, self._kind, self._tokens = run, cost, kind, tokens
        self._running = 0
        self.start()

    def cost(self, work: WorkT) -> int:
        return self._cost(work)

    def _active_count(self) -> int:
        return self._running

    def _turn(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._queue)
            if self._running:
                self._changed.wait_for(
                    lambda: self._closed or not self._running or len(self._queue) >= ENOUGH, timeout=GATHER
                )
            if self._closed:
                return False
            self._queue.expire()
            window = self._take()
            self._running += len(window)
        if window:
            started = time.perf_counter()
            read, written = self._answer(window)
            self._count(len(window), read, written, time.perf_counter() - started)
            with self._changed:
                self._running -= len(window)
                for ticket in window:
                    self._queue.finish(ticket, ticket.cost)
                self._changed.notify_all()
        return True

    def _take(self) -> list[Ticket[WorkT]]:
        first = self._queue.take(lambda _: True)
        if first is None:
            return []
        kind, low, high = self._kind(first.work), first.cost / SIMILAR, first.cost * SIMILAR
        alike = self._queue.take_alike(
            lambda other: low <= other.cost <= high and self._kind(other.work) == kind, MAX_WINDOW - 1
        )
        return [first, *alike]

    def _answer(self, window: Sequence[Ticket[WorkT]]) -> tuple[int, int]:
        """Compute a batch; of one that fails the halves, until the ticket that fails is alone.

        Returns the tokens that were read and written.
        """
        left = [ticket for ticket in window if not is_over(ticket)]
        for ticket in set(window) - set(left):
            ticket.fail(deadline_error())
        if not left:
            return 0, 0
        try:
            results = self._compute([ticket.work for ticket in left])
        except BaseException as error:
            failure = as_exception(error)
            if len(left) == 1:
                left[0].fail(failure)
                return 0, 0
            middle = len(left) // 2
            return _sum([self._answer(left[:middle]), self._answer(left[middle:])])
        for ticket, result in zip(left, results, strict=True):
            ticket.finish(result)
        return _sum([self._tokens(ticket.work, result) for ticket, result in zip(left, results, strict=True)])


def _sum(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(read for read, _ in pairs), sum(written for _, written in pairs)
