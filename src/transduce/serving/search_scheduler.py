"""Continuous batching: the requests of all clients share the steps of one search.

Each turn of the loop is one step of everything that is active; it does not wait for arrivals. Before a step, waiting
sources may be encoded: those for which there is space, as one call to the encoder for each length, once there are
enough of them or the oldest has waited a few steps. A request reserves beam size × maximum length + source, and what is
active fits into a bound: nothing is ever preempted.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from transduce.errors import as_exception
from transduce.inference.search.options import Request, Result
from transduce.inference.search.search import Search
from transduce.serving.fair_queue import Ticket, deadline_error
from transduce.serving.scheduler import Capacity, Scheduler, is_over, stopping_error

MIN_BATCH = 8
"""Sources that are encoded without waiting for others; a call to the encoder for fewer costs decoding too much …"""
MAX_WAIT = 2
"""… unless the oldest has waited so many steps."""
MAX_ENCODED = 2048
"""Source tokens that are encoded between two steps, or those of one long source."""


class SearchScheduler(Scheduler[Request]):
    """One thread that owns one `Search`."""

    def __init__(self, search: Search, capacity: Capacity | None = None) -> None:
        super().__init__(capacity or Capacity())
        search.model.eval()
        self._search = search
        self._active: dict[int, Ticket[Request]] = {}
        self._sent: dict[int, int] = {}
        """Tokens that were passed to `on_tokens` of each active request that streams."""
        self._ids = itertools.count()
        self._model = threading.Lock()
        """Held while the model is used."""
        self._exclusive = 0
        """Threads that use the model themselves, or wait to."""
        self.start()

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

    def cost(self, work: Request) -> int:
        """Beam size × maximum length + source."""
        return reserved_tokens(work)

    def _active_count(self) -> int:
        return len(self._active)

    def _turn(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (not self._exclusive and (self._queue or self._active)))
            if self._closed:
                for ticket in self._active.values():
                    ticket.fail(stopping_error())
                return False
            self._queue.expire()
            dropped = self._drop()
            admitted = self._admit()
        if admitted or dropped or self._active:
            with self._model:
                self._step(admitted, dropped)
        return True

    def _drop(self) -> list[int]:
        """Remove the requests that were cancelled or are too late, and return their numbers."""
        dropped = [number for number, ticket in self._active.items() if is_over(ticket)]
        for number in dropped:
            ticket = self._active.pop(number)
            self._sent.pop(number, None)
            ticket.fail(deadline_error())
            self._queue.finish(ticket, ticket.cost)
        return dropped

    def _admit(self) -> dict[int, Ticket[Request]]:
        """Take the requests that are encoded before the next step: none, or a micro-batch that is worth a call."""
        active = [ticket.work for ticket in self._active.values()]
        rows = sum(request.options.width for request in active)
        longest = max(map(_length, active), default=0)
        for ticket in self._queue:
            ticket.waited += 1
        if active and len(self._queue) < MIN_BATCH and all(ticket.waited <= MAX_WAIT for ticket in self._queue):
            return {}
        admitted: dict[int, Ticket[Request]] = {}
        encoded = 0

        def fits(ticket: Ticket[Request]) -> bool:
            request = ticket.work
            all_rows = rows + request.options.width
            return not (active or admitted) or (
                all_rows <= self._capacity.max_rows
                and all_rows * max(longest, _length(request)) <= self._capacity.max_tokens
                and (not admitted or encoded + _read(request) <= MAX_ENCODED)
            )

        while (taken := self._queue.take(fits)) is not None:
            number, request = next(self._ids), taken.work
            admitted[number] = taken
            rows, encoded, longest = (
                rows + request.options.width,
                encoded + _read(request),
                max(longest, _length(request)),
            )
            if taken.on_tokens is not None:
                self._sent[number] = 0
        self._active |= admitted
        return admitted

    def _step(self, admitted: dict[int, Ticket[Request]], dropped: list[int]) -> None:
        """Admit, drop and advance; an error of the search itself fails all active requests."""
        started = time.perf_counter()
        rows = sum(ticket.work.options.width for ticket in self._active.values())
        agreed: dict[int, list[int]] = {}
        try:
            self._search.drop(dropped)
            self._search.admit([replace(ticket.work, id=number) for number, ticket in admitted.items()])
            results = self._search.advance()
            if self._sent:
                agreed = self._search.agreed()
        except BaseException as error:  # `Search` turns errors of requests into results; this is none of them
            failure = as_exception(error)
            results = [Result(number, [], failure) for number in self._active]
            self._search.drop(self._active)
        encoded = sum(_read(ticket.work) for ticket in admitted.values())
        self._count(rows, encoded, rows, time.perf_counter() - started)
        for number in self._sent.keys() & agreed.keys():
            self._notify(number, agreed[number])
        for result in results:
            self._finish(result)

    def _finish(self, result: Result) -> None:
        with self._changed:
            ticket = self._active.pop(result.id, None)
            self._sent.pop(result.id, None)
            if ticket is None:
                return
            written = sum(len(one.tokens) for one in result.hypotheses[:1])
            self._queue.finish(ticket, _read(ticket.work) + ticket.work.options.width * written)
        ticket.finish(replace(result, id=ticket.work.id))

    def _notify(self, number: int, tokens: list[int]) -> None:
        """Pass new tokens to a client that streams; if its function fails, its request is dropped."""
        ticket = self._active[number]
        if ticket.on_tokens is None or len(tokens) <= self._sent[number] or ticket.future.done():
            return
        self._sent[number] = len(tokens)
        try:
            ticket.on_tokens(tokens)
        except BaseException as error:
            ticket.fail(as_exception(error))


def reserved_tokens(request: Request) -> int:
    """Tokens that a request reserves: beam size × maximum length + source."""
    return request.options.width * request.max_total_length + len(request.source) + 1


def _read(request: Request) -> int:
    """Tokens that are read before the first is written."""
    return len(request.source) + len(request.prefix) + 1


def _length(request: Request) -> int:
    """Tokens that one row of a request may hold in the caches."""
    return len(request.source) + 1 + request.max_total_length
