"""Ctrl-C, SIGTERM and a closed terminal as wishes: the loop ends its update, saves, stops. A second stops at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from transduce.errors import TransduceError


class Interrupted(TransduceError):
    """A run that was asked to stop, and did, with everything saved."""

    def __init__(self, number: int, update: int, run: str = "RUN") -> None:
        super().__init__(
            f"stopped at update {update:,} with everything saved; go on with `transduce train --resume {run}`"
        )
        self.exit_code = 128 + number


class Interruption:
    """Remembers the signal that asked for a stop."""

    def __init__(self, run: str = "RUN", before: dict[int, Any] | None = None) -> None:
        self.wanted: int | None = None
        self.run = run
        """What the run is called when it is said how to go on."""
        self.patient = False
        """Whether a second signal asks for nothing more: of several processes each is told by whoever asks and again by
        `torchrun`, which kills them itself if they take too long."""
        self._before = before or {}
        """What each signal does when nobody listens."""

    def stop(self, update: int, said: bool = False) -> None:
        """Stop, now that everything is saved; `said` where another process tells the person so."""
        assert self.wanted is not None
        stopped = Interrupted(self.wanted, update, self.run)
        stopped.said = said
        raise stopped

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.wanted is None or self.patient:
            self.wanted = self.wanted or number
            return
        signal.signal(number, self._before[number])  # impatient: as if nobody listened, so files aside are removed
        signal.raise_signal(number)


@contextlib.contextmanager
def listening(run: str = "RUN") -> Iterator[Interruption]:
    """Hear SIGINT, SIGTERM and SIGHUP while inside; elsewhere than in the main thread nobody can.

    A signal that whoever started us wants ignored, as `nohup` does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Interruption(run)
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {int(number): handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    interruption = Interruption(run, before)
    for number in before:
        signal.signal(number, interruption._hear)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
