"""Progress of preparation, translation and training on standard error.

Live on a terminal, plain lines elsewhere, nothing with `--quiet`.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import Protocol

import click
from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from transduce.cli.terminal import PLAIN_SECONDS, is_quiet, note, visible
from transduce.inference.ctranslate2.engine import Parallelism
from transduce.training.reporter import Plan, Reporter, Sample, Silent, Step, Validation

# Preparation and translation.

QUICK = 3.0
"""Seconds before progress is shown; shorter work needs none."""


class JobProgress(Protocol):
    """Shows the progress of a translation."""

    def show(self, share: float, speed: float, left: str) -> None: ...


class Rate:
    """Lines per second and remaining time, as moving averages."""

    def __init__(self, size: int) -> None:
        self._size = max(1, size)
        self._seconds, self._lines, self._bytes, self._read = 0.0, 0.0, 0.0, 0

    def begin(self, read: int) -> None:
        """Start after `read` bytes of the file."""
        self._read = read

    def add(self, lines: int, read: int, seconds: float) -> None:
        """Add one window; older ones decay."""
        keep = 0.9
        self._seconds = keep * self._seconds + seconds
        self._lines = keep * self._lines + lines
        self._bytes = keep * self._bytes + read - self._read
        self._read = read

    @property
    def share(self) -> float:
        """Fraction of the file that is done."""
        return min(1.0, self._read / self._size)

    @property
    def speed(self) -> float:
        """Lines per second."""
        return self._lines / max(self._seconds, 1e-9)

    def left(self) -> str:
        """Return the remaining time as 1:02:03."""
        seconds = int(max(0, self._size - self._read) * self._seconds / max(self._bytes, 1.0))
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class Follower:
    """Reports on a translation; `unit` is what it counts."""

    def __init__(self, progress: JobProgress | None, size: int, unit: str) -> None:
        self._progress, self._rate, self._unit = progress, Rate(size), unit
        self._began = self._last = time.monotonic()

    def resumed(self, segments: int) -> None:
        note(f"resumed at {self._unit} {segments + 1:,}")

    def calibrated(self, parallelism: Parallelism, ctranslate2: bool) -> None:
        threads = f"{parallelism.threads} thread{'s' * (parallelism.threads > 1)}"
        workers = f"{parallelism.workers} worker{'s' * (parallelism.workers > 1)}"
        shared = f"{workers} of {threads}, batches of {parallelism.batch_size}" if ctranslate2 else threads
        note(f"{shared}, the fastest of those tried here", "chosen: ")

    def started(self, read: int) -> None:
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
        self._printed = time.monotonic()

    def show(self, share: float, speed: float, left: str) -> None:
        if time.monotonic() - self._printed < PLAIN_SECONDS or share >= 1.0:
            return
        with contextlib.suppress(OSError):  # standard error is closed; the translation continues
            print(f"{100 * share:.1f} % done, {speed:,.0f} lines/s, {left} left", file=sys.stderr, flush=True)
        self._printed = time.monotonic()


class LiveProgress:
    """A progress bar, removed at the end."""

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
        """Restore the terminal."""
        self._live.stop()


@contextlib.contextmanager
def following(size: int | None, unit: str) -> Iterator[Follower]:
    """Return what suits standard error; without a size no progress is shown."""
    console = Console(stderr=True)
    if not size or is_quiet():
        yield Follower(None, 0, unit)
    elif not console.is_terminal or console.is_dumb_terminal:
        yield Follower(PlainProgress(), size, unit)
    else:
        live = LiveProgress(console)
        try:
            yield Follower(live, size, unit)
        finally:
            live.close()


class PreparationProgress:
    """Progress of preparing a corpus: one live line on a terminal, elsewhere a line for each stage."""

    def __init__(self) -> None:
        self._live, self._quiet = sys.stderr.isatty(), is_quiet()
        self._stage = ""
        self._shown = 0.0

    def show(self, stage: str, count: int) -> None:
        """Show how far a stage is."""
        if stage == self._stage and (not self._live or time.monotonic() - self._shown < 0.1):
            return
        if self._live:
            self._print(f"\r\x1b[K{stage}: {count:,}")
        elif stage != self._stage:
            self._print(f"{stage} …\n")
        self._stage, self._shown = stage, time.monotonic()

    def __enter__(self) -> PreparationProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._stage:
            self._print("\r\x1b[K")

    def _print(self, text: str) -> None:
        if not self._quiet:
            with contextlib.suppress(OSError):  # standard error is closed (`2>&1 | head`); the work continues
                click.echo(text, err=True, nl=False)


@contextlib.contextmanager
def reporting() -> Iterator[Reporter]:
    """Return the display that suits standard error, and restore the terminal afterwards."""
    if is_quiet():
        yield Silent()
        return
    console = Console(stderr=True)
    with PreparationProgress() as preparation:
        if not console.is_terminal or console.is_dumb_terminal:
            yield PlainLines(preparation)
            return
        display = LiveDisplay(console, preparation)
        try:
            yield display
        finally:
            display.close()


def describe(plan: Plan) -> str:
    """Return one line about the run that begins."""
    ranks = f"{plan.ranks} ranks of " if plan.ranks > 1 else ""
    return (
        f"{plan.parameters:,} parameters, "
        f"{plan.train_pairs:,} training and {plan.validation_pairs:,} validation {plan.rows}, "
        f"{plan.updates:,} updates (about {plan.updates / plan.updates_per_epoch:.1f} epochs), "
        f"{ranks}{plan.threads} thread{'s' * (plan.threads > 1)} on {plan.device}, about {plan.memory / 2**30:.1f} GiB "
        f"of memory{_resumed(plan)}"
    )


def _resumed(plan: Plan) -> str:
    if plan.first_update == 1:
        return ""
    done = plan.first_update - 1
    if not plan.is_over:
        return f", resumed at update {plan.first_update:,}"
    if done < plan.updates:
        return f"; this run is already finished: training.patience stopped it early, at update {done:,}"
    return f"; this run is already finished: to train it further, add --updates N with N above {done:,}"


def summarise(validation: Validation) -> str:
    """Return one validation as one line."""
    return f"update {validation.update:,}: {validation}{', best so far' if validation.best else ''}"


def translated(sample: Sample) -> str:
    """Return a sample with its translation as one line, without control characters."""
    return f"{visible(sample.source)}  →  {visible(sample.translation)}"


class Speed:
    """Tokens per second and remaining time, as moving averages."""

    def __init__(self) -> None:
        self._seconds, self._tokens, self._updates = 0.0, 0.0, 0.0
        self._began, self._learning, self._seen = 0.0, 0.0, 0

    def add(self, step: Step) -> None:
        """Add one update; older ones decay."""
        self._began = self._began if self._seen else time.monotonic() - step.seconds
        self._learning, self._seen = self._learning + step.seconds, self._seen + 1
        keep = 0.98
        self._seconds = keep * self._seconds + step.seconds
        self._tokens = keep * self._tokens + step.tokens
        self._updates = keep * self._updates + 1

    def tokens_per_second(self) -> float:
        return self._tokens / max(self._seconds, 1e-9)

    def left(self, updates: int) -> str:
        """Return the time for that many more updates as 1:02:03, validations and checkpoints included."""
        others = max(0.0, time.monotonic() - self._began - self._learning) / max(1, self._seen)
        seconds = int(updates * (self._seconds / max(self._updates, 1e-9) + others))
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class PlainLines:
    """One line every few seconds, without control characters, for log files."""

    def __init__(self, preparation: PreparationProgress) -> None:
        self._preparation = preparation
        self._speed, self._printed, self._updates = Speed(), time.monotonic(), 0

    def preparing(self, stage: str, count: int) -> None:
        self._preparation.show(stage, count)

    def begin(self, plan: Plan) -> None:
        self._updates = plan.updates
        self._print(describe(plan))

    def step(self, step: Step) -> None:
        self._speed.add(step)
        if time.monotonic() - self._printed >= PLAIN_SECONDS:
            left = self._speed.left(self._updates - step.update)
            self._print(
                f"update {step.update:,} of {self._updates:,}: loss {step.loss:.3f}, "
                f"{self._speed.tokens_per_second():,.0f} tokens/s, {left} left"
            )

    def validation(self, validation: Validation) -> None:
        self._print(summarise(validation))
        for sample in validation.samples[:1]:
            self._print(f"  {translated(sample)}  (reference: {visible(sample.reference)})")

    def warn(self, message: str) -> None:
        self._print(f"note: {message}")

    def end(self, message: str) -> None:
        self._print(f"done: {message}")

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):  # standard error is closed (`2>&1 | head`); the run continues
            print(line, file=sys.stderr, flush=True)
        self._printed = time.monotonic()


class LiveDisplay:
    """A progress bar with loss, speed and remaining time, and a sample translation."""

    def __init__(self, console: Console, preparation: PreparationProgress) -> None:
        self._console, self._preparation = console, preparation
        self._speed, self._updates = Speed(), 1
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._loss: float | None = None
        self._sample = Text("")

    def preparing(self, stage: str, count: int) -> None:
        self._preparation.show(stage, count)

    def begin(self, plan: Plan) -> None:
        self._updates = plan.updates
        self._print(describe(plan))
        self._live.start()

    def step(self, step: Step) -> None:
        self._speed.add(step)
        if math.isfinite(step.loss):
            self._loss = step.loss if self._loss is None else 0.95 * self._loss + 0.05 * step.loss
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=self._updates, completed=step.update, width=30),
            f"{step.update:,}/{self._updates:,}",
            f"loss {math.nan if self._loss is None else self._loss:.3f}",
            f"{self._speed.tokens_per_second():,.0f} tokens/s",
            f"{self._speed.left(self._updates - step.update)} left",
        )
        self._live.update(Group(line, self._sample))

    def validation(self, validation: Validation) -> None:
        self._print(summarise(validation))
        if validation.samples:
            sample = validation.samples[validation.update % len(validation.samples)]
            self._sample = Text(translated(sample), style="cyan", overflow="ellipsis", no_wrap=True)

    def warn(self, message: str) -> None:
        self._print(f"note: {message}")

    def end(self, message: str) -> None:
        self.close()
        self._print(f"done: {message}")

    def close(self) -> None:
        """Restore the terminal."""
        self._live.stop()

    def _print(self, line: str) -> None:
        if not self._live.is_started:
            self._console.control(
                Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
            )  # clear the line of PreparationProgress
        self._console.print(line, highlight=False, markup=False)
