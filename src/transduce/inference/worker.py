"""A search in its own thread: requests are submitted to it and cancelled at any time.

A server uses this. Requests of all clients share one `Search`; each token is one step for all of them.
File jobs and validation drive a `Search` themselves, which is faster for many requests at once.

    with SearchWorker(search) as worker:
        ticket = worker.submit(request)
        result = ticket.result()
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from transduce.errors import Busy, TransduceError
from transduce.inference.search.options import Request, Result
from transduce.inference.search.search import Search
from transduce.nn.hook import eval_mode

MAX_ACTIVE = 64
"""Requests that are searched at once; others wait."""
MAX_WAITING = 1024
"""Requests that may wait."""

OnTokens = Callable[[Sequence[int]], None]
"""Receives the tokens of the best hypothesis that can no longer change, after each step that added some."""


@dataclass
class Ticket:
    """A submitted request."""

    id: int
    request: Request
    on_tokens: OnTokens | None = None
    future: Future[Result] = field(default_factory=Future)

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the result, which may have an error; raises CancelledError if the request was cancelled."""
        return replace(self.future.result(timeout), id=self.request.id)


class SearchWorker:
    """One thread that owns one `Search`. Methods may be called from any thread.

    The model must not be used elsewhere while a step runs, except by threads that only read its weights.
    """

    def __init__(self, search: Search, max_active: int = MAX_ACTIVE, max_waiting: int = MAX_WAITING) -> None:
        self._search, self._max_active, self._max_waiting = search, max_active, max_waiting
        self._waiting: dict[int, Ticket] = {}
        self._active: dict[int, Ticket] = {}
        self._cancelled: set[int] = set()
        self._ids = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="search", daemon=True)
        self._thread.start()

    def submit(self, request: Request, on_tokens: OnTokens | None = None) -> Ticket:
        """Queue a request; raises `Busy` if too many are waiting."""
        with self._changed:
            if self._closed:
                raise TransduceError("this worker was closed; start another one")
            if len(self._waiting) >= self._max_waiting:
                raise Busy(f"{len(self._waiting):,} requests are waiting already; try again later")
            ticket = Ticket(next(self._ids), request, on_tokens)
            self._waiting[ticket.id] = ticket
            self._changed.notify()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request, waiting or active; its rows are free from the next step on."""
        with self._changed:
            if self._waiting.pop(ticket.id, None) is not None:
                ticket.future.cancel()
            elif ticket.id in self._active:
                self._cancelled.add(ticket.id)
                self._changed.notify()

    @property
    def load(self) -> int:
        """Number of requests that are waiting or active."""
        with self._changed:
            return len(self._waiting) + len(self._active)

    def close(self) -> None:
        """Cancel what is left, and wait for the thread to end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting or self._active)
                if self._closed:
                    self._cancel_all()
                    return
                dropped, self._cancelled = self._cancelled, set()
                for id in dropped:
                    self._active.pop(id).future.cancel()
                room = max(0, self._max_active - len(self._active))
                admitted = [self._waiting.pop(id) for id in list(self._waiting)[:room]]
                self._active |= {ticket.id: ticket for ticket in admitted}
            self._step(admitted, dropped)

    def _step(self, admitted: Sequence[Ticket], dropped: set[int]) -> None:
        """Admit, drop and advance; an error of the search itself fails all active requests."""
        try:
            with eval_mode(self._search.model):
                self._search.drop(dropped)
                self._search.admit([replace(ticket.request, id=ticket.id) for ticket in admitted])
                results = self._search.advance()
                agreed = self._search.agreed() if any(one.on_tokens for one in self._active.values()) else {}
        except Exception as error:  # `Search` turns errors of requests into results; this is none of them
            results = [Result(id, [], error) for id in self._active]
            agreed = {}
            self._search.drop(self._active)
        for id, tokens in agreed.items():
            self._notify(self._active.get(id), tokens)
        for result in results:
            with self._changed:
                ticket = self._active.pop(result.id, None)
                self._cancelled.discard(result.id)
            if ticket is not None:
                if result.hypotheses:
                    self._notify(ticket, result.hypotheses[0].tokens)
                ticket.future.set_result(result)

    def _notify(self, ticket: Ticket | None, tokens: Sequence[int]) -> None:
        """Pass new tokens to a client; if its function fails, its request is cancelled."""
        if ticket is None or ticket.on_tokens is None:
            return
        try:
            ticket.on_tokens(tokens)
        except Exception:  # the client is gone
            self.cancel(ticket)

    def _cancel_all(self) -> None:
        for ticket in (*self._waiting.values(), *self._active.values()):
            ticket.future.cancel()
        self._waiting.clear()
        self._active.clear()
