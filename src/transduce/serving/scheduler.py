"""Continuous batching: the requests of all clients share the steps of one search.

Decoding never pauses: each turn of the loop is one step of everything that is active. Before a step, waiting sources
may be encoded: those for which there is space, as one call to the encoder for each length, once there are enough of
them or the oldest has waited a few steps. A request reserves beam size × maximum length + source, and what is active
fits into a bound: nothing is ever preempted.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from transduce.inference.search.options import Request, Result
from transduce.inference.search.search import Search
from transduce.nn.hook import eval_mode
from transduce.serving.backend import Statistics
from transduce.serving.fair_queue import FairQueue, Ticket, deadline_error
from transduce.serving.job import JobError

SearchTicket = Ticket[Request]

MIN_BATCH = 8
"""Sources that are encoded without waiting for others; a call to the encoder for fewer costs decoding too much …"""
MAX_WAIT = 2
"""… unless the oldest has waited so many steps."""
MAX_ENCODED = 2048
"""Source tokens that are encoded between two steps, or those of one long source."""


@dataclass(frozen=True)
class Capacity:
    """How much is searched at a time, and how much may wait."""

    max_rows: int = 128
    """Rows of a step: requests × beam size."""
    max_tokens: int = 65_536
    """Rows × (longest source + longest target): what the caches of all active requests may hold."""
    max_queue_tokens: int = 65_536


class Scheduler:
    """A thread that owns one `Search`. Methods may be called from any thread."""

    def __init__(self, search: Search, capacity: Capacity | None = None) -> None:
        self._search, self._capacity = search, capacity or Capacity()
        self._queue: FairQueue[Request] = FairQueue(self._capacity.max_queue_tokens)
        self._active: dict[int, SearchTicket] = {}
        self._dropped: set[int] = set()
        """Active requests that were cancelled since the last step."""
        self._ids = itertools.count()
        self._changed = threading.Condition()
        self._model = threading.Lock()
        """Held while the model is used."""
        self._exclusive = 0
        """Threads that use the model themselves, or wait to."""
        self._closed = False
        self._statistics = Statistics()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(
        self,
        requests: Sequence[Request],
        client: str,
        deadline: float,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> list[SearchTicket]:
        """Queue requests, all or none; raises JobError (busy) if the queue is full."""
        tickets = [Ticket(request, client, _cost(request), deadline, on_tokens=on_tokens) for request in requests]
        with self._changed:
            if self._closed:
                raise JobError("unavailable", "the model is being stopped", retry_after=5.0)
            self._queue.put(tickets)
            self._changed.notify_all()
        return tickets

    def cancel(self, tickets: Sequence[SearchTicket]) -> None:
        """Drop requests, waiting or active; their rows are free from the next step on."""
        with self._changed:
            self._queue.remove(tickets)
            own = {id(ticket) for ticket in tickets}
            self._dropped |= {number for number, ticket in self._active.items() if id(ticket) in own}
            self._changed.notify_all()
        for ticket in tickets:
            ticket.future.cancel()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Use the model between two steps."""
        with self._changed:
            self._exclusive += 1
        try:
            with self._model:
                yield
        finally:
            with self._changed:
                self._exclusive -= 1
                self._changed.notify_all()

    def statistics(self) -> Statistics:
        """The newest counters."""
        with self._changed:
            return replace(
                self._statistics, queue_tokens=self._queue.tokens, waiting=len(self._queue), active=len(self._active)
            )

    def close(self) -> None:
        """Cancel what is left, and wait for the thread to end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (not self._exclusive and (self._queue or self._active)))
                if self._closed:
                    for ticket in (*self._queue, *self._active.values()):
                        ticket.fail(JobError("unavailable", "the model is being stopped", retry_after=5.0))
                    return
                self._queue.expire()
                dropped = self._drop()
                admitted = self._admit()
            if admitted or dropped or self._active:
                with self._model:
                    self._step(admitted, dropped)

    def _drop(self) -> set[int]:
        """Remove the requests that were cancelled or are too late, and return their numbers."""
        now = time.monotonic()
        for number, ticket in self._active.items():
            if ticket.deadline <= now:
                self._dropped.add(number)
                ticket.fail(deadline_error())
        dropped, self._dropped = self._dropped & self._active.keys(), set()
        for number in dropped:
            ticket = self._active.pop(number)
            self._queue.finish(ticket, ticket.cost)
        return dropped

    def _admit(self) -> dict[int, SearchTicket]:
        """Take the requests that are encoded before the next step: none, or a micro-batch that is worth a call."""
        active = [ticket.work for ticket in self._active.values()]
        rows = sum(request.options.width for request in active)
        longest = max(map(_length, active), default=0)
        for ticket in self._queue:
            ticket.waited += 1
        if active and len(self._queue) < MIN_BATCH and all(ticket.waited <= MAX_WAIT for ticket in self._queue):
            return {}
        admitted: dict[int, SearchTicket] = {}
        encoded = 0

        def fits(ticket: SearchTicket) -> bool:
            request = ticket.work
            all_rows = rows + request.options.width
            return not (active or admitted) or (
                all_rows <= self._capacity.max_rows
                and all_rows * max(longest, _length(request)) <= self._capacity.max_tokens
                and (not admitted or encoded + _read(request) <= MAX_ENCODED)
            )

        while (ticket := self._queue.take(fits)) is not None:
            admitted[next(self._ids)] = ticket
            rows, encoded = rows + ticket.work.options.width, encoded + _read(ticket.work)
            longest = max(longest, _length(ticket.work))
        self._active |= admitted
        return admitted

    def _step(self, admitted: dict[int, SearchTicket], dropped: set[int]) -> None:
        """Admit, drop and advance; an error of the search itself fails all active requests."""
        started = time.perf_counter()
        rows = sum(ticket.work.options.width for ticket in self._active.values())
        agreed: dict[int, list[int]] = {}
        try:
            with eval_mode(self._search.model):
                self._search.drop(dropped)
                self._search.admit([replace(ticket.work, id=number) for number, ticket in admitted.items()])
                results = self._search.advance()
                if any(ticket.on_tokens for ticket in self._active.values()):
                    agreed = self._search.agreed()
        except BaseException as error:  # `Search` turns errors of requests into results; this is none of them
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
            results = [Result(number, [], failure) for number in self._active]
            self._search.drop(self._active)
        encoded = sum(_read(ticket.work) for ticket in admitted.values())
        self._count(rows, encoded, time.perf_counter() - started)
        for number, tokens in agreed.items():
            self._notify(self._active.get(number), tokens)
        for result in results:
            self._finish(result)

    def _finish(self, result: Result) -> None:
        with self._changed:
            ticket = self._active.pop(result.id, None)
            if ticket is None:
                return
            written = sum(len(one.tokens) for one in result.hypotheses[:1])
            self._queue.finish(ticket, _read(ticket.work) + ticket.work.options.width * written)
        if result.hypotheses:
            self._notify(ticket, result.hypotheses[0].tokens)
        if ticket.future.set_running_or_notify_cancel():
            ticket.future.set_result(replace(result, id=ticket.work.id))

    def _notify(self, ticket: SearchTicket | None, tokens: Sequence[int]) -> None:
        if ticket is None or ticket.on_tokens is None or ticket.future.done():
            return
        try:
            ticket.on_tokens(tokens)
        except Exception:  # the client is gone
            self.cancel([ticket])

    def _count(self, rows: int, encoded: int, seconds: float) -> None:
        before = self._statistics
        with self._changed:
            self._statistics = replace(
                before,
                rows=rows,
                steps=before.steps + 1,
                stepped_rows=before.stepped_rows + rows,
                step_seconds=before.step_seconds + seconds,
                encoded_tokens=before.encoded_tokens + encoded,
                written_tokens=before.written_tokens + rows,
            )


def _read(request: Request) -> int:
    """Tokens that are read before the first is written."""
    return len(request.source) + len(request.prefix) + 1


def _length(request: Request) -> int:
    """Tokens that one row of a request may hold in the caches."""
    return len(request.source) + 1 + request.max_total_length


def _cost(request: Request) -> int:
    """Tokens that a request reserves: beam size × maximum length + source."""
    return request.options.width * request.max_total_length + len(request.source) + 1
