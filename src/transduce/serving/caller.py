"""Whom the work of a thread is for, and engines that submit it to the schedulers under that name."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from transduce.inference.search.options import Hypothesis, Request, StreamStep
from transduce.serving.fair_queue import Ticket, deadline_error
from transduce.serving.scheduler import Scheduler
from transduce.serving.search_scheduler import SearchScheduler


@dataclass(eq=False)
class Caller:
    """The client of a job, and what was read and written for it. Other threads may cancel it."""

    client: str
    deadline: float
    read: int = 0
    """Source tokens."""
    written: int = 0
    """Tokens of all hypotheses."""
    _cancels: list[Callable[[], None]] = field(default_factory=list)
    _cancelled: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cancel(self) -> None:
        """Cancel what is submitted, and everything that will be."""
        with self._lock:
            self._cancelled = True
            cancels = list(self._cancels)
        for cancel in cancels:
            cancel()

    def check(self) -> None:
        """Raise what ends a job before it begins: CancelledError, or JobError if it is too late."""
        if self._cancelled:
            raise CancelledError
        if self.deadline <= time.monotonic():
            raise deadline_error()

    @contextmanager
    def submitted(self, scheduler: Scheduler[Any], tickets: Sequence[Ticket[Any]]) -> Iterator[None]:
        """While tickets are waited for: cancel them with the job, and when the job fails."""

        def cancel() -> None:
            scheduler.cancel(tickets)

        with self._lock:
            self._cancels.append(cancel)
            is_late = self._cancelled
        try:
            if is_late:
                cancel()
            yield
        finally:
            with self._lock:
                self._cancels.remove(cancel)
            if not all(ticket.future.done() for ticket in tickets):
                cancel()


CALLER: ContextVar[Caller] = ContextVar("caller")
"""The caller of the job that the present thread carries out."""


def results_of(scheduler: Scheduler[Any], works: Sequence[Any]) -> list[Any]:
    """Submit works for the present caller and wait for their results."""
    caller = CALLER.get()
    tickets = scheduler.submit(works, caller.client, caller.deadline)
    with caller.submitted(scheduler, tickets):
        return [ticket.future.result() for ticket in tickets]


class ScheduledEngine:
    """Searches on the model by the steps that all callers share."""

    def __init__(self, scheduler: SearchScheduler) -> None:
        self._scheduler = scheduler

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests."""
        found = [result.checked() for result in results_of(self._scheduler, requests)] if requests else []
        _count(requests, found)
        return found

    def stream(self, request: Request) -> Iterator[StreamStep]:
        """Yield the tokens of the best hypothesis that can no longer change, at last with the hypothesis itself."""
        caller, updates = CALLER.get(), queue.SimpleQueue[list[int] | None]()
        tickets = self._scheduler.submit([request], caller.client, caller.deadline, on_tokens=updates.put)
        tickets[0].future.add_done_callback(lambda _: updates.put(None))
        with caller.submitted(self._scheduler, tickets):
            while (tokens := updates.get()) is not None:
                yield tokens, None
            hypotheses = tickets[0].future.result().checked()
        _count([request], [hypotheses])
        yield hypotheses[0].tokens, hypotheses[0]

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep the search out of the model while it is copied or inspected."""
        return self._scheduler.exclusive()


class WindowedEngine:
    """Translates with CTranslate2 by batches that all callers share."""

    def __init__(self, scheduler: Scheduler[Request]) -> None:
        self._scheduler = scheduler

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests."""
        found: list[list[Hypothesis]] = results_of(self._scheduler, requests) if requests else []
        _count(requests, found)
        return found


def _count(requests: Sequence[Request], found: Sequence[Sequence[Hypothesis]]) -> None:
    caller = CALLER.get()
    for request, several in zip(requests, found, strict=True):
        if several:  # CTranslate2 leaves some to PyTorch, which counts them
            caller.read += len(request.source)
            caller.written += sum(len(one.tokens) for one in several)
