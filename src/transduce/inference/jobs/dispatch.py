"""Dispatch: blocks are handed to workers that may come late, fail or vanish with their machine.

Nothing here knows how workers are started: `Cluster` is the seam, which Ray fills. A worker receives the number of a
block and returns how many lines it had; text stays in files.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from transduce.errors import Busy, TransduceError

POLL_SECONDS = 1.0
"""Time after which waiting is reported."""
MAX_LOSSES = 5
"""Workers that may vanish while they translate the same block: it may be the block that ends them."""
MAX_FAILED_STARTS = 10
"""Workers in a row that may vanish before they are ready."""


@dataclass(frozen=True)
class Event:
    """What a worker reports: that it is ready, that a block is done, an error, or that it is gone."""

    worker: int
    kind: Literal["ready", "done", "failed", "lost"]
    lines: int = 0
    """Of a block that is done."""
    code: int = 1
    message: str = ""
    """Of an error, with its exit code; or how a worker was lost."""


class Cluster(Protocol):
    """Starts workers and hands them blocks; each has one thing to do at a time."""

    def start(self) -> int:
        """Ask for a worker, which may take any time to be ready; return its number, which is new."""

    def translate(self, worker: int, block: int) -> None:
        """Hand a block to a worker that is ready."""

    def wait(self, seconds: float) -> list[Event]:
        """Return what has happened; nothing after so many seconds."""


class DispatchObserver(Protocol):
    """Is notified of progress."""

    def finished(self, lines: int) -> None: ...
    def lost(self, message: str) -> None: ...
    def waiting(self, working: int, starting: int) -> None: ...


class WorkerError(TransduceError):
    """An error of a worker, in its words and with its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class _Dispatch:
    """Blocks that are waiting and workers by what they do."""

    def __init__(self, cluster: Cluster, blocks: Iterable[int], workers: int, observer: DispatchObserver) -> None:
        self._cluster, self._observer = cluster, observer
        self._blocks, self._busy = deque(blocks), deque[int]()
        self._working: dict[int, int] = {}
        self._idle: deque[int] = deque()
        self._starting = {cluster.start() for _ in range(min(workers, len(self._blocks)))}
        self._losses: Counter[int] = Counter()
        self._failed_starts = 0

    def run(self) -> None:
        """Hand out blocks until all are done; an error ends it, and so do workers that are lost again and again."""
        while self._blocks or self._busy or self._working:
            while self._blocks and self._idle:
                worker, block = self._idle.popleft(), self._blocks.popleft()
                self._working[worker] = block
                self._cluster.translate(worker, block)
            events = self._cluster.wait(POLL_SECONDS)
            for event in events:
                self._take(event)
            if not events:
                self._blocks.extend(self._busy)
                self._busy.clear()
                self._observer.waiting(len(self._working), len(self._starting))

    def _take(self, event: Event) -> None:
        block = self._working.pop(event.worker, None)
        if event.kind == "lost":
            self._replace(event, block)
            return
        if event.worker in self._starting:
            self._starting.discard(event.worker)
            self._failed_starts = 0
        self._idle.append(event.worker)
        if event.kind == "done":
            self._observer.finished(event.lines)
        elif event.kind == "failed":
            if block is None or event.code != Busy.exit_code:
                raise WorkerError(event.message, event.code)
            self._busy.append(block)  # perhaps of a worker whose machine is cut off, and still writes

    def _replace(self, event: Event, block: int | None) -> None:
        """Start another worker; give the block to the next that is free."""
        self._observer.lost(event.message)
        if block is not None:
            self._losses[block] += 1
            if self._losses[block] > MAX_LOSSES:
                raise TransduceError(
                    f"block {block} crashed {self._losses[block]} workers, last with: {event.message}; translate it "
                    "with --shard to see why"
                )
            self._blocks.appendleft(block)
        elif event.worker in self._starting:
            self._failed_starts += 1
            if self._failed_starts > MAX_FAILED_STARTS:
                raise TransduceError(f"no worker can be started: {event.message}")
        self._starting.discard(event.worker)
        if event.worker in self._idle:
            self._idle.remove(event.worker)
        self._starting.add(self._cluster.start())


def dispatch(cluster: Cluster, blocks: Iterable[int], workers: int, observer: DispatchObserver) -> None:
    """Have workers translate blocks, in any order; return when all are done."""
    _Dispatch(cluster, blocks, workers, observer).run()
