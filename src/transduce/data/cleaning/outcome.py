"""What cleaning found: a verdict for every pair, the pairs that are kept, counts and examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.config import Table

REASONS = {
    "": "kept",
    "empty": "a side is empty",
    "too_long": "a side is too long",
    "few_letters": "a side has few letters",
    "copy": "source and target are equal",
    "language": "a side is in another language",
    "swapped": "the sides are swapped",
    "ratio": "the lengths of the sides differ too much",
    "duplicate": "the pair occurred before",
    "near_duplicate": "a nearly equal pair occurred before",
    "misaligned": "the sides are not translations of each other",
}
"""Verdicts on pairs that are removed, in the order of the detectors."""
REPAIRS = {"swapped": "swapped sides were swapped back", "realigned": "the target was taken from another line"}
MAX_EXAMPLES = 5
EXAMPLE_CHARACTERS = 120
CHUNK = 2**12
_CODES = {reason: code for code, reason in enumerate(REASONS)}
_NAMES = list(REASONS)

Rows = NDArray[np.int64]


class Verdicts:
    """The verdict on each pair: one byte."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint8]] = []
        self._codes: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self.lines: Rows = np.zeros(0, dtype=np.int64)
        """Line of each pair in its file."""
        self.swapped: set[int] = set()
        """Rows whose sides are swapped back."""
        self.earlier: dict[int, int] = {}
        """The earlier row that a row nearly equals."""

    def append(self, reasons: Sequence[str]) -> None:
        """Add the verdicts on the next pairs."""
        self._parts.append(np.array([_CODES[reason] for reason in reasons], dtype=np.uint8))

    def _all(self) -> NDArray[np.uint8]:
        if self._parts:
            self._codes = np.concatenate([self._codes, *self._parts])
            self._parts = []
        return self._codes

    @property
    def left(self) -> NDArray[np.bool_]:
        """Which pairs are kept so far."""
        kept: NDArray[np.bool_] = self._all() == 0
        return kept

    def of(self, reason: str) -> NDArray[np.bool_]:
        """Which pairs have a verdict."""
        found: NDArray[np.bool_] = self._all() == _CODES[reason]
        return found

    def reason(self, row: int) -> str:
        """Return the verdict on a row."""
        return _NAMES[int(self._all()[row])]

    def mark(self, rows: Rows, reason: str) -> None:
        """Set the verdict on rows."""
        self._all()[rows] = _CODES[reason]

    def clear(self, rows: Rows) -> None:
        """Keep rows after all."""
        self._all()[rows] = 0

    def counts(self) -> dict[str, int]:
        """Return how many pairs have each verdict that occurs."""
        found = np.bincount(self._all(), minlength=len(REASONS)).tolist()
        return {reason: found[code] for reason, code in _CODES.items() if found[code] and reason}


class CleanPair(NamedTuple):
    """A pair that is kept."""

    source: str
    target: str
    line: int
    repair: str | None = None


class RemovedPair(NamedTuple):
    """A pair that is removed."""

    source: str
    target: str
    line: int
    reason: str
    earlier: int | None = None
    """The line of the pair that it nearly equals."""

    def to_json(self) -> Table:
        """Return plain values."""
        found: Table = {"line": self.line, "reason": self.reason, "source": self.source, "target": self.target}
        return found if self.earlier is None else {**found, "earlier_line": self.earlier}


@dataclass
class Outcome:
    """The outcome of cleaning; texts are read from a temporary folder, which must still exist."""

    folder: Path
    size: int
    verdicts: Verdicts
    realigned: dict[int, int]
    """Rows whose target is taken from another row."""
    notes: list[str]
    texts: Callable[[Rows], tuple[list[str], list[str]]]

    def pairs(self) -> Iterator[CleanPair | RemovedPair]:
        """Yield every pair of the corpus, in order, as it is kept or removed."""
        moved = set(self.realigned.values())
        for start in range(0, self.size, CHUNK):
            rows = np.arange(start, min(start + CHUNK, self.size))
            sources, targets = self.texts(rows)
            for row, source, target in zip(rows.tolist(), sources, targets, strict=True):
                line, reason = int(self.verdicts.lines[row]), self.verdicts.reason(row)
                if row in self.realigned:
                    other = np.array([self.realigned[row]])
                    yield CleanPair(source, self.texts(other)[1][0], line, "realigned")
                elif reason:
                    earlier = self.verdicts.earlier.get(row) if reason == "near_duplicate" else None
                    place = None if earlier is None else int(self.verdicts.lines[earlier])
                    yield RemovedPair(source, target, line, reason, place)
                elif row in self.verdicts.swapped:
                    yield CleanPair(target, source, line, "swapped")
                else:
                    assert row not in moved, "its target is used by another row"
                    yield CleanPair(source, target, line)


class CleaningReport:
    """Counts and examples, and the report in JSON and in lines."""

    def __init__(self) -> None:
        self.kept = 0
        self.counts: dict[str, int] = dict.fromkeys(REASONS, 0) | dict.fromkeys(
            (f"repair {name}" for name in REPAIRS), 0
        )
        self.examples: dict[str, list[Table]] = {}

    def add(self, pair: CleanPair | RemovedPair) -> None:
        """Count one pair."""
        if isinstance(pair, RemovedPair):
            name, example = pair.reason, pair.to_json()
        else:
            self.kept += 1
            if pair.repair is None:
                return
            name = f"repair {pair.repair}"
            example = {"line": pair.line, "source": pair.source, "target": pair.target}
        self.counts[name] += 1
        examples = self.examples.setdefault(name, [])
        if len(examples) < MAX_EXAMPLES:
            short = {key: value[:EXAMPLE_CHARACTERS] for key, value in example.items() if isinstance(value, str)}
            examples.append({**example, **short})

    def to_table(self, size: int, notes: Sequence[str]) -> Table:
        """Return plain values."""
        removed = {reason: self.counts[reason] for reason in REASONS if self.counts[reason]}
        repaired = {name: self.counts[f"repair {name}"] for name in REPAIRS if self.counts[f"repair {name}"]}
        return {
            "read": size,
            "kept": self.kept,
            "removed": removed,
            "repaired": repaired,
            "notes": list(notes),
            "examples": {name.removeprefix("repair "): found for name, found in self.examples.items()},
        }


def report_lines(table: Table) -> Iterator[str]:
    """Return the lines to print of a report."""
    size = max(1, table["read"])
    yield f"read         {table['read']:,} pairs"
    yield f"kept         {table['kept']:,} ({100 * table['kept'] / size:.1f} %)"
    for heading, texts in (("removed", REASONS), ("repaired", REPAIRS)):
        for reason, count in table[heading].items():
            yield f"{heading:12} {count:,} ({100 * count / size:.1f} %): {texts[reason]}"
            first = table["examples"].get(reason, [{}])[0]
            if first:
                yield f"    line {first['line']:,}: {first['source']!r} | {first['target']!r}"
    for note in table["notes"]:
        yield f"note         {note}"
