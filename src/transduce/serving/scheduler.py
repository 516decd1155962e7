"""A thread that owns a model and serves the work of all clients, between which it is fair."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

import torch

from transduce.serving.backend import Statistics
from transduce.serving.fair_queue import FairQueue, OnTokens, Ticket, WorkT
from transduce.serving.job import JobError


@dataclass(frozen=True)
class Capacity:
    """How much is computed at a time, and how much may wait."""

    max_rows: int = 128
    """Rows of a step: requests × beam size."""
    max_tokens: int = 65_536
    """Rows × (longest source + longest target): what the caches of all active requests may hold."""
    max_queue_tokens: int = 131_072
    threads: int = 1
    """Threads of PyTorch's operations."""


class Scheduler(ABC, Generic[WorkT]):
    """Queues work and carries it out in threads of its own. Methods may be called from any thread."""

    def __init__(self, capacity: Capacity, workers: int = 1) -> None:
        self._capacity = capacity
        self._queue: FairQueue[WorkT] = FairQueue(capacity.max_queue_tokens)
        self._changed = threading.Condition()
        """Guards the queue and everything that the threads share."""
        self._closed = False
        self._statistics = Statistics()
        self._threads = [
            threading.Thread(target=self._run, name=type(self).__name__, daemon=True) for _ in range(workers)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(
        self, works: Sequence[WorkT], client: str, deadline: float, on_tokens: OnTokens | None = None
    ) -> list[Ticket[WorkT]]:
        """Queue the work of one job, all or nothing; raises JobError (busy) if the queue is full."""
        tickets = [Ticket(work, client, self.cost(work), deadline, on_tokens) for work in works]
        with self._changed:
            if self._closed:
                raise stopping_error()
            self._queue.put(tickets)
            self._changed.notify_all()
        return tickets

    def cancel(self, tickets: Sequence[Ticket[WorkT]]) -> None:
        """Drop work, waiting or active; active rows are free from the next step on."""
        for ticket in tickets:
            ticket.future.cancel()
        with self._changed:
            self._queue.remove(tickets)
            self._changed.notify_all()

    def statistics(self) -> Statistics:
        """The newest counters."""
        with self._changed:
            return replace(
                self._statistics, queue_tokens=self._queue.tokens, waiting=len(self._queue), active=self._active_count()
            )

    def close(self) -> None:
        """Fail what is left, and wait for the threads to end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        with self._changed:
            for ticket in self._queue.remove(list(self._queue)):
                ticket.fail(stopping_error())

    @abstractmethod
    def cost(self, work: WorkT) -> int:
        """Tokens that a piece of work reserves."""

    @abstractmethod
    def _active_count(self) -> int:
        """How many tickets are being worked on. The caller holds the lock."""

    @abstractmethod
    def _turn(self) -> bool:
        """Do the next piece of work, once there is some; return whether to continue."""

    def _run(self) -> None:
        torch.set_num_threads(self._capacity.threads)  # each thread has a setting of its own
        while self._turn():
            pass

    def _count(self, rows: int, encoded: int, written: int, seconds: float) -> None:
        with self._changed:
            before = self._statistics
            self._statistics = replace(
                before,
                rows=rows,
                steps=before.steps + 1,
                stepped_rows=before.stepped_rows + rows,
                step_seconds=before.step_seconds + seconds,
                encoded_tokens=before.encoded_tokens + encoded,
                written_tokens=before.written_tokens + written,
            )


def stopping_error() -> JobError:
    """The error of work that a scheduler no longer does."""
    return JobError("unavailable", "the model is being stopped", retry_after=5.0)


def is_over(ticket: Ticket[WorkT]) -> bool:
    """Whether nobody waits for a ticket any longer: its client cancelled it, or its deadline has passed."""
    return ticket.future.done() or ticket.deadline <= time.monotonic()
