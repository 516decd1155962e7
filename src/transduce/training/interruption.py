"""Clean stops: after Ctrl-C, SIGTERM or SIGHUP the loop finishes its update, saves and stops.

A second signal stops at once.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from transduce.errors import TransduceError

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Windows has no SIGHUP."""


class Interrupted(TransduceError):
    """A run stopped by a signal, with everything saved."""

    label = ""

    def __init__(self, number: int, update: int, run: str = "RUN") -> None:
        super().__init__(
            f"stopped at update {update:,}, everything is saved; resume with `transduce train --resume {run}`"
        )
        self.exit_code = 128 + number


class Interruption:
    """Records the signal that requested a stop."""

    def __init__(self, run: str = "RUN", before: dict[int, Any] | None = None) -> None:
        self.wanted: int | None = None
        self.run = run
        """Name of the run folder, for the message about resuming."""
        self.patient = False
        """Whether a second signal is ignored: `torchrun` forwards signals to processes that have received them already,
        and kills them itself if they take too long."""
        self._before = before or {}
        """The previous handler of each signal."""

    def stop(self, update: int, reported: bool = False) -> None:
        """Stop, now that everything is saved; `reported` where another process prints the message."""
        assert self.wanted is not None
        stopped = Interrupted(self.wanted, update, self.run)
        stopped.reported = reported
        raise stopped

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.wanted is None or self.patient:
            self.wanted = self.wanted or number
            return
        signal.signal(number, self._before[number])  # the second time: its previous handler
        signal.raise_signal(number)


@contextlib.contextmanager
def catch_signals(run: str = "RUN") -> Iterator[Interruption]:
    """Handle SIGINT, SIGTERM and SIGHUP inside the context; in the main thread only, as Python requires.

    A signal that the parent process ignores, as `nohup` does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Interruption(run)
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {int(number): handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    interruption = Interruption(run, before)
    for number in before:
        signal.signal(number, interruption._receive)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
