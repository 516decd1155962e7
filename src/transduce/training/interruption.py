"""Ctrl-C and SIGTERM as wishes: the loop finishes its update, saves, and then stops. A second one stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from transduce.errors import TransduceError


class Interrupted(TransduceError):
    """A run that was asked to stop, and did, with everything saved."""

    def __init__(self, number: int, update: int) -> None:
        super().__init__(
            f"stopped at update {update:,} with everything saved; go on with `transduce train --resume RUN`"
        )
        self.exit_code = 128 + number


class Interruption:
    """Remembers the signal that asked for a stop."""

    def __init__(self) -> None:
        self.wanted: int | None = None

    def stop(self, update: int) -> None:
        """Stop, now that everything is saved."""
        assert self.wanted is not None
        raise Interrupted(self.wanted, update)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.wanted is not None:
            os._exit(128 + number)
        self.wanted = number


@contextlib.contextmanager
def listening() -> Iterator[Interruption]:
    """Hear SIGINT and SIGTERM while inside; elsewhere than in the main thread nobody can."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.signal(number, interruption._hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
