"""The record of a run so far, from its folder: journal, times, settings and data.

A run that is still running, or was killed, is read as far as it got: an incomplete last line is ignored. Any other line
that cannot be read is damage, reported with its line number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from transduce.config import Table, read_toml
from transduce.errors import MissingInput, ModelFolderError
from transduce.storage.atomic import read_json
from transduce.storage.layout import DATA, JOURNAL, MODEL, RECIPE, REPORT, TIMING

LARGEST, LONGEST = 1e300, 1e12
"""Limits of a value and of seconds; beyond them nothing is drawn, below them sums stay finite."""

Curve = list[tuple[int, float]]
"""Values smaller than `LARGEST`, by update, in rising order."""


class Line(NamedTuple):
    """One event of a journal, with its file and line number."""

    path: Path
    at: int
    """Line number from 1."""
    values: Table

    @property
    def event(self) -> str:
        """Name of the event."""
        return str(self.values["event"])

    @property
    def update(self) -> int:
        """Number of updates before it."""
        found = self.values.get("update")
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**53:
            raise self.damage("'update' is not a number of updates")
        return found

    def number(self, name: str) -> float | None:
        """Return a number, finite or not; None where there is none."""
        found = self.values.get(name)
        if found is None:
            return None
        if not isinstance(found, int | float) or isinstance(found, bool):
            raise self.damage(f"'{name}' is not a number")
        try:
            return float(found)
        except OverflowError:
            return math.inf if found > 0 else -math.inf

    def damage(self, what: str) -> ModelFolderError:
        """Return the error for this line."""
        return ModelFolderError(f"{self.path}:{self.at}: {what}; the line is damaged, restore the file from a copy")


class SampleRecord(NamedTuple):
    """A validation pair as the model translated it."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class ValidationRecord:
    """One validation."""

    update: int
    measures: dict[str, float | None]
    """Loss, perplexity, accuracy, then the scores of the translations."""
    best: bool
    samples: tuple[SampleRecord, ...]


class Note(NamedTuple):
    """An event other than updates and validations."""

    update: int | None
    event: str
    detail: str


@dataclass
class Times:
    """`timing.jsonl` over updates: each process counts its seconds from zero; here they add up."""

    hours: Curve = field(default_factory=list)
    """Training time of all processes; work that was lost and repeated counts, time between processes does not."""
    speed: Curve = field(default_factory=list)
    """Target tokens a second, between two lines of one process."""
    memory: Curve = field(default_factory=list)
    """Resident bytes of the training process."""
    resumed: list[Note] = field(default_factory=list)
    seconds: float = 0.0
    """Of all processes together."""
    last_written: float | None = None
    """When the last line was written, in seconds since 1970."""
    ended: bool = False
    """Whether the last process finished the run; an interrupted one writes no such event."""
    reached: int = 0
    """The update of the last line that names one."""
    _before: float = 0.0
    _now: float = 0.0
    _mark: tuple[float, float | None] | None = None
    """Seconds and tokens of this process's last update line."""

    def take(self, line: Line) -> None:
        """Take the next line. A process that found no checkpoint starts again at the first update without an event."""
        now = line.number("seconds")
        if now is None or not 0 <= now < LONGEST:
            raise line.damage("'seconds' is not a time")
        from_nothing = line.event == "update" and bool(self.hours) and line.update <= self.hours[-1][0]
        if line.event == "resumed" or from_nothing or now < self._now:
            self._before, self._mark = self._before + self._now, None
        if line.event == "resumed":
            self._forget_after(line.update)
            self.resumed.append(_note(line))
        elif line.event == "rolled_back":  # the same process continues, and so does its clock
            self._forget_after(line.update)
            self._mark = None
        elif from_nothing:
            self._forget_after(line.update - 1)
        self._now, self.seconds, self.last_written = now, self._before + now, line.number("at")
        self.ended = line.event == "ended"
        self.reached = line.update if "update" in line.values else self.reached
        if line.event == "update":
            self._take_update(line, now, line.number("tokens"))

    def _take_update(self, line: Line, now: float, tokens: float | None) -> None:
        if self._mark is not None and tokens is not None and self._mark[1] is not None:
            elapsed, trained = now - self._mark[0], tokens - self._mark[1]
            if elapsed > 0 and trained >= 0:
                _put(self.speed, line.update, trained / elapsed)
        self._mark = now, tokens
        _put(self.hours, line.update, self.seconds / 3600)
        _put(self.memory, line.update, line.number("memory"))

    def _forget_after(self, update: int) -> None:
        """Drop the points that this process repeats."""
        for curve in (self.hours, self.speed, self.memory):
            while curve and curve[-1][0] > update:
                curve.pop()


@dataclass(frozen=True)
class RunRecord:
    """The content of a report about a run."""

    folder: Path
    began: Table
    """Fingerprint of everything the run depends on."""
    progress: dict[str, Curve]
    """By name, from the journal's update lines: loss, learning_rate, gradient_norm, tokens, epoch."""
    checks: tuple[ValidationRecord, ...]
    skipped: tuple[Note, ...]
    """Updates without a finite loss and gradient."""
    notes: tuple[Note, ...]
    """All other events."""
    final: Table | None
    """Scores of the finished model; None until the run has ended, or without validation data."""
    times: Times
    recipe: Table | None
    data: Table | None

    @property
    def finished(self) -> bool:
        """Whether the run finished; a stopped run may have a model, too."""
        return self.times.ended or (self.final is not None and self.times.last_written is None)

    @property
    def updates(self) -> int:
        """The last update in the journal."""
        places = [curve[-1][0] for curve in (*self.progress.values(), self.times.hours) if curve]
        noted = [*(check.update for check in self.checks), *(note.update or 0 for note in self.skipped)]
        return max([self.times.reached, *places, *noted])


def read_run(folder: Path) -> RunRecord:
    """Read a run's folder; its journal is the one file that must be there."""
    if not folder.is_dir():
        raise MissingInput(f"{folder}: no such folder; give a run folder")
    if not (folder / JOURNAL).exists():
        raise ModelFolderError(f"{folder}: is not a run (no {JOURNAL}); give a folder created by `transduce train`")
    lines = _without_rolled_back(read_lines(folder / JOURNAL))
    timing, recipe, report = folder / TIMING, folder / RECIPE, folder / DATA / REPORT
    times = read_times(read_lines(timing) if timing.exists() else [])
    if not lines and (times.ended or (folder / MODEL).exists()):
        raise ModelFolderError(f"{folder / JOURNAL}: is empty, but the run has ended; restore it from a copy")
    known = {"began", "update", "validation", "skipped", "final"}
    began, final = _last("began", lines), _last("final", lines)
    return RunRecord(
        folder=folder,
        began={} if began is None else began.values,
        progress=_progress([line for line in lines if line.event == "update"]),
        checks=_checks([line for line in lines if line.event == "validation"]),
        skipped=tuple(_note(line) for line in lines if line.event == "skipped"),
        notes=tuple(_note(line) for line in lines if line.event not in known),
        final=None if final is None else final.values,
        times=times,
        recipe=read_toml(recipe) if recipe.exists() else None,
        data=read_json(report) if report.exists() else None,
    )


def read_lines(path: Path) -> list[Line]:
    """Read the complete lines of a journal."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MissingInput(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    lines = []
    *complete, rest = content.split(b"\n")
    if not complete and rest and not rest.startswith(b'{"event"'):  # which would be a line half written
        raise Line(path, 1, {}).damage("is not JSON")
    for at, text in enumerate(complete, start=1):
        try:
            values = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError):
            raise Line(path, at, {}).damage("is not JSON") from None
        if not isinstance(values, dict) or not isinstance(values.get("event"), str):
            raise Line(path, at, {}).damage("is not an event")
        lines.append(Line(path, at, values))
    return lines


def _without_rolled_back(lines: Iterable[Line]) -> list[Line]:
    """Drop the updates that a rollback undid."""
    kept: list[Line] = []
    for line in lines:
        if line.event == "rolled_back" and (to := line.number("to")) is not None:
            kept = [one for one in kept if one.event not in ("update", "skipped") or one.update <= to]
        kept.append(line)
    return kept


def read_times(lines: Iterable[Line]) -> Times:
    """Add up the processes of a run, each of which resumes from a checkpoint of the previous one."""
    times = Times()
    for line in lines:
        times.take(line)
    return times


def _progress(lines: Sequence[Line]) -> dict[str, Curve]:
    names = ("loss", "learning_rate", "gradient_norm", "tokens", "epoch")
    curves: dict[str, Curve] = {name: [] for name in names}
    for line in sorted(lines, key=lambda line: line.update):
        for name in names:
            _put(curves[name], line.update, line.number(name))
    return curves


def _checks(lines: Sequence[Line]) -> tuple[ValidationRecord, ...]:
    found = {line.update: line for line in lines}
    return tuple(_check(found[update]) for update in sorted(found))


def _check(line: Line) -> ValidationRecord:
    scores = [name for name in line.values if name not in ("event", "update", "best", "samples")]
    samples = line.values.get("samples", [])
    if not isinstance(samples, list) or not all(
        isinstance(sample, list) and len(sample) == 3 and all(isinstance(text, str) for text in sample)
        for sample in samples
    ):
        raise line.damage("'samples' are not triples of text")
    measures = {name: line.number(name) for name in scores}
    return ValidationRecord(
        line.update, measures, line.values.get("best") is True, tuple(SampleRecord(*sample) for sample in samples)
    )


def _note(line: Line) -> Note:
    values = {name: value for name, value in line.values.items() if name not in ("event", "update", "seconds", "at")}
    detail = ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()
    )
    return Note(line.update if "update" in line.values else None, line.event, detail)


def _put(curve: Curve, update: int, value: float | None) -> None:
    """Add a finite value; a later one for the same update replaces it."""
    if value is None or not abs(value) < LARGEST:
        return
    if curve and curve[-1][0] == update:
        curve.pop()
    curve.append((update, value))


def _last(event: str, lines: Sequence[Line]) -> Line | None:
    return next((line for line in reversed(lines) if line.event == event), None)
