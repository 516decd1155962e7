"""Ranks that hear each other while they train.

A rank that died is noticed by its closed connection. One that was frozen, or whose host vanished, keeps it open: the
others would wait for its gradients for as long as they wait for anything. So each rank leaves a number in `torchrun`'s
store, a new one every few seconds, and looks whether the others' change.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from torch.distributed.distributed_c10d import Store

from transduce.errors import TransduceError

BEAT = 2.0
"""Seconds between two looks."""
SILENCE = 10
"""Looks without a new number after which a rank counts as lost. They are counted, not timed: where all ranks are
stopped together, as by Ctrl-Z, nobody has looked."""
DONE = b"done"


class LostRank(TransduceError):
    """Another rank has gone; `torchrun` starts all of them again if it may."""

    exit_code = 75


class Pulse:
    """What one rank hears of the others."""

    def __init__(self, store: Store, rank: int, world: int) -> None:
        self.store, self.rank = store, rank
        self._heard = {other: (b"", 0) for other in range(world) if other != rank}
        self._count = 0

    def beat(self) -> list[int]:
        """Leave a new number, look for the others', and return the ranks that have been silent for too long."""
        self._count += 1
        self.store.set(f"pulse/{self.rank}", str(self._count))
        for other, (before, silent) in self._heard.items():
            found = self.store.get(f"pulse/{other}") if self.store.check([f"pulse/{other}"]) else b""
            self._heard[other] = found, 0 if found != before or found in (b"", DONE) else silent + 1
        return [other for other, (_, silent) in self._heard.items() if silent >= SILENCE]

    def end(self) -> None:
        """Say goodbye, so that nobody worries."""
        self.store.set(f"pulse/{self.rank}", DONE.decode())


@contextlib.contextmanager
def beating(pulse: Pulse, give_up: Callable[[list[int]], None] | None = None) -> Iterator[None]:
    """Beat while inside. When a rank is lost the process ends, as if killed: the main thread waits where no exception
    reaches it, and everything up to the last checkpoint is on disk."""
    over, give_up = threading.Event(), give_up or _leave

    def go_on() -> None:
        with contextlib.suppress(RuntimeError):  # the store has gone, and `torchrun` with it
            while not (lost := pulse.beat()):
                if over.wait(BEAT):
                    return
            give_up(lost)

    thread = threading.Thread(target=go_on, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(RuntimeError):
            pulse.end()


def _leave(lost: list[int]) -> None:
    names = ", ".join(map(str, lost))
    with contextlib.suppress(OSError):
        print(
            f"error: rank {names} was not heard of for {BEAT * SILENCE:.0f} seconds; all must be started again, with "
            "--resume",
            file=sys.stderr,
            flush=True,
        )
    os._exit(LostRank.exit_code)
