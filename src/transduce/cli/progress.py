"""A translation as a person follows it: a bar on a terminal, plain lines everywhere else. All on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol

import click
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from transduce.cli.terminal import PLAIN_SECONDS
from transduce.inference.pace import Pace

QUICK = 3.0
"""Seconds in which something may end that nobody needs to follow."""


class Progress(Protocol):
    """Shows how far a translation has come."""

    def show(self, share: float, speed: float, left: str) -> None: ...


class Rate:
    """Lines per second and time left, over the last stretch of a translation."""

    def __init__(self, size: int) -> None:
        self._size = max(1, size)
        self._seconds, self._lines, self._bytes, self._read = 0.0, 0.0, 0.0, 0

    def begin(self, read: int) -> None:
        """Begin where so many bytes of the file had been read."""
        self._read = read

    def add(self, lines: int, read: int, seconds: float) -> None:
        """Take one window in; old ones count less and less."""
        keep = 0.9
        self._seconds = keep * self._seconds + seconds
        self._lines = keep * self._lines + lines
        self._bytes = keep * self._bytes + read - self._read
        self._read = read

    @property
    def share(self) -> float:
        """How much of the file is done, from 0 to 1."""
        return min(1.0, self._read / self._size)

    @property
    def speed(self) -> float:
        """Lines per second."""
        return self._lines / max(self._seconds, 1e-9)

    def left(self) -> str:
        """Time for the rest, as 1:02:03."""
        seconds = int(max(0, self._size - self._read) * self._seconds / max(self._bytes, 1.0))
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class Follower:
    """Tells a person on standard error what a translation does; `what` is what it counts."""

    def __init__(self, progress: Progress | None, size: int, what: str) -> None:
        self._progress, self._rate, self._what = progress, Rate(size), what
        self._began = self._last = time.monotonic()

    def goes_on(self, segments: int) -> None:
        click.echo(f"going on at {self._what} {segments + 1:,}", err=True)

    def chose(self, pace: Pace, fast: bool) -> None:
        threads = f"{pace.threads} thread{'s' * (pace.threads > 1)}"
        workers = f"{pace.workers} worker{'s' * (pace.workers > 1)}"
        shared = f"{workers} of {threads}, batches of {pace.batch}" if fast else threads
        click.echo(f"chosen: {shared}, by trying what is fastest here", err=True)

    def begins(self, read: int) -> None:
        self._began = self._last = time.monotonic()
        self._rate.begin(read)

    def wrote(self, lines: int, read: int) -> None:
        now = time.monotonic()
        self._rate.add(lines, read, now - self._last)
        self._last = now
        if self._progress is not None and now - self._began >= QUICK:
            self._progress.show(self._rate.share, self._rate.speed, self._rate.left())


class PlainProgress:
    """One line every few seconds."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def show(self, share: float, speed: float, left: str) -> None:
        if time.monotonic() - self._said < PLAIN_SECONDS or share >= 1.0:
            return
        with contextlib.suppress(OSError):  # nobody reads it any more; the translation goes on
            print(f"{100 * share:.1f} % done, {speed:,.0f} lines/s, {left} left", file=sys.stderr, flush=True)
        self._said = time.monotonic()


class LiveProgress:
    """A bar that is gone at the end."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def show(self, share: float, speed: float, left: str) -> None:
        if not self._live.is_started:
            self._live.start()
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=1.0, completed=share, width=30),
            f"{100 * share:.1f} %",
            f"{speed:,.0f} lines/s",
            f"{left} left",
        )
        self._live.update(line)

    def close(self) -> None:
        """Give the terminal back."""
        self._live.stop()


@contextlib.contextmanager
def following(size: int | None, what: str) -> Iterator[Follower]:
    """Give what fits where standard error goes; without a size no progress is shown."""
    console = Console(stderr=True)
    if not size:
        yield Follower(None, 0, what)
    elif not console.is_terminal or console.is_dumb_terminal:
        yield Follower(PlainProgress(), size, what)
    else:
        live = LiveProgress(console)
        try:
            yield Follower(live, size, what)
        finally:
            live.close()
