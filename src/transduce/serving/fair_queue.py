"""A queue that is bounded in tokens and fair between clients.

Every client has a counter of the tokens that were computed for it; the next request is one of the client with the
smallest counter (virtual token counter, Sheng et al. 2024). A client that arrives starts at the smallest counter of
those who wait: it is served soon, and being idle earns nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from transduce.serving.job import JobError

WorkT = TypeVar("WorkT")

OnTokens = Callable[[list[int]], None]
"""Receives the tokens of the best hypothesis that can no longer change, after each step that added some."""


@dataclass(eq=False)
class Ticket(Generic[WorkT]):
    """One piece of work of a client: a request to a search, or a text for a text encoder."""

    work: WorkT
    client: str
    cost: int
    """Tokens that it reserves; it never needs more."""
    deadline: float
    """On the clock of `time.monotonic`."""
    on_tokens: OnTokens | None = None
    future: Future[Any] = field(default_factory=Future)
    waited: int = 0
    """Steps that were made while it waited."""

    def finish(self, result: Any) -> None:
        """End with a result, unless it has ended already: a client may cancel at any time."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """End with an error, unless it has ended already."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)


class FairQueue(Generic[WorkT]):
    """The tickets that wait, by client. The caller holds a lock."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.tokens = 0
        """Tokens that the waiting tickets reserve."""
        self._waiting: dict[str, deque[Ticket[WorkT]]] = {}
        self._served: dict[str, float] = {}
        """Tokens computed for each client that waits or is being served."""
        self._running: dict[str, int] = {}
        """Tickets of each client that were taken and are not finished."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[Ticket[WorkT]]:
        return (ticket for tickets in self._waiting.values() for ticket in tickets)

    def put(self, tickets: Sequence[Ticket[WorkT]]) -> None:
        """Add all tickets of a job or none; raises JobError where they would exceed the bound."""
        cost = sum(ticket.cost for ticket in tickets)
        if cost > self.max_tokens:
            raise JobError(
                "invalid",
                f"the request reserves {cost:,} tokens (beam size × maximum length + source, of each text) and this "
                f"server admits {self.max_tokens:,} at a time; send fewer texts, or a smaller beam_size or max_length",
            )
        if self.tokens + cost > self.max_tokens:
            raise JobError("busy", f"{self.tokens:,} tokens are waiting already; try again later", retry_after=1.0)
        for ticket in tickets:
            if ticket.client not in self._served:
                counters = [self._served[client] for client in self._waiting] or self._served.values()
                self._served[ticket.client] = min(counters, default=0.0)
            self._waiting.setdefault(ticket.client, deque()).append(ticket)
        self.tokens += cost

    def take(self, fits: Callable[[Ticket[WorkT]], bool]) -> Ticket[WorkT] | None:
        """Remove and return the next ticket; None if there is none, or if it does not fit.

        No other ticket overtakes one that does not fit, or a large request would wait for ever.
        """
        if not self._waiting:
            return None
        client = min(self._waiting, key=self._served.__getitem__)
        ticket = self._waiting[client][0]
        if not fits(ticket):
            return None
        self._begin(ticket)
        return ticket

    def take_alike(self, matches: Callable[[Ticket[WorkT]], bool], count: int) -> list[Ticket[WorkT]]:
        """Remove and return up to `count` tickets that match, those of the clients served least first."""
        order = sorted(self._waiting, key=self._served.__getitem__)
        found = [ticket for client in order for ticket in self._waiting[client] if matches(ticket)][:count]
        for ticket in found:
            self._begin(ticket)
        return found

    def remove(self, tickets: Iterable[Ticket[WorkT]]) -> list[Ticket[WorkT]]:
        """Remove those of the tickets that are waiting, and return them."""
        found = [ticket for ticket in tickets if ticket in self._waiting.get(ticket.client, ())]
        for ticket in found:
            self._remove(ticket)
            self._forget(ticket.client)
        return found

    def expire(self) -> None:
        """Fail the tickets whose deadline has passed."""
        now = time.monotonic()
        for ticket in self.remove([ticket for ticket in self if ticket.deadline <= now]):
            ticket.fail(deadline_error())

    def finish(self, ticket: Ticket[WorkT], tokens: int) -> None:
        """Count the tokens that were computed for a ticket that was taken."""
        # What it reserved was counted when it was taken: a client with much running is behind one with nothing.
        self._served[ticket.client] += tokens - ticket.cost
        self._running[ticket.client] -= 1
        self._forget(ticket.client)

    def _begin(self, ticket: Ticket[WorkT]) -> None:
        self._remove(ticket)
        self._served[ticket.client] += ticket.cost
        self._running[ticket.client] = self._running.get(ticket.client, 0) + 1

    def _remove(self, ticket: Ticket[WorkT]) -> None:
        tickets = self._waiting[ticket.client]
        tickets.remove(ticket)
        if not tickets:
            del self._waiting[ticket.client]
        self.tokens -= ticket.cost

    def _forget(self, client: str) -> None:
        """Forget a client that has nothing here, or there would be a counter for every address that ever called."""
        if client not in self._waiting and not self._running.get(client):
            self._running.pop(client, None)
            self._served.pop(client, None)


def deadline_error() -> JobError:
    """The error of work that was not done in time."""
    return JobError("deadline", "the request was not completed in time; send fewer or shorter texts", retry_after=1.0)
