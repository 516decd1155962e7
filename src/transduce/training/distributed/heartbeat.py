"""Heartbeats: ranks notice when another one hangs.

A rank that died is noticed by its closed connection. One that is stuck, or whose host vanished, keeps it open: the
others would wait for its gradients until the timeout. So each rank writes a counter to `torchrun`'s store every few
seconds, and checks that those of the others change.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from torch.distributed.distributed_c10d import Store

from transduce.errors import TransduceError

INTERVAL = 2.0
"""Seconds between two beats."""
MISSED_BEATS = 10
"""Beats without a new counter after which a rank counts as lost. They are counted, not timed: where all ranks are
suspended together, as by Ctrl-Z, none is missed."""
DONE = b"done"


class LostRank(TransduceError):
    """Another rank is gone; `torchrun` restarts all of them if it may."""

    exit_code = 75


class Heartbeat:
    """The counters of one rank and of the others."""

    def __init__(self, store: Store, rank: int, world: int) -> None:
        self.store, self.rank = store, rank
        self._seen = {other: (b"", 0) for other in range(world) if other != rank}
        self._count = 0

    def beat(self) -> list[int]:
        """Write a new counter, read those of the others, and return the ranks that have missed too many beats."""
        self._count += 1
        self.store.set(f"heartbeat/{self.rank}", str(self._count))
        for other, (before, missed) in self._seen.items():
            found = self.store.get(f"heartbeat/{other}") if self.store.check([f"heartbeat/{other}"]) else b""
            self._seen[other] = found, 0 if found != before or found in (b"", DONE) else missed + 1
        return [other for other, (_, missed) in self._seen.items() if missed >= MISSED_BEATS]

    def end(self) -> None:
        """Tell the others that this rank has finished."""
        self.store.set(f"heartbeat/{self.rank}", DONE.decode())


@contextlib.contextmanager
def beating(heartbeat: Heartbeat, on_loss: Callable[[list[int]], None] | None = None) -> Iterator[None]:
    """Beat inside the context. When a rank is lost the process exits, as if killed: the main thread waits where no
    exception reaches it, and everything up to the last checkpoint is on disk."""
    over, on_loss = threading.Event(), on_loss or _exit

    def beat() -> None:
        with contextlib.suppress(RuntimeError):  # the store is gone, and `torchrun` with it
            while not (lost := heartbeat.beat()):
                if over.wait(INTERVAL):
                    return
            on_loss(lost)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(RuntimeError):
            heartbeat.end()


def _exit(lost: list[int]) -> None:
    names = ", ".join(map(str, lost))
    with contextlib.suppress(OSError):
        print(
            f"error: rank {names} has not responded for {INTERVAL * MISSED_BEATS:.0f} seconds; restart all ranks with "
            "--resume",
            file=sys.stderr,
            flush=True,
        )
    os._exit(LostRank.exit_code)
