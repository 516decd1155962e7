"""The first pass over a corpus: every readable pair goes to disk, and what is odd about it is marked.

Nothing grows with the corpus but files: texts, 64-bit hashes and one byte of marks per pair. Equal pairs are
found by sorting hashes, a part of them at a time. Two different pairs with equal hashes would count as equal; among
20 million pairs the chance of one such accident is about one in 100,000.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.data.ragged import RaggedWriter, read_strings
from transduce.data.report import MAX_EXAMPLES, MAX_SHOWN, REASONS, Example, Finding
from transduce.text.corpus import Pair

CHUNK_ROWS = 4096
CHUNK_CHARACTERS = 2**23
HASH_ROWS = 2**20
"""Hashes read from disk at a time."""
PART_ROWS = 2**21
"""Hashes sorted at a time: about 100 MB of work space."""

MARKS = {"copy": 1, "leaked_pair": 2, "leaked_source": 4, "duplicate": 8}
"""Findings that are marked per pair, one bit each; ratio and length in tokens are found later."""
HELD_OUT = 128
"""The mark of a training pair that goes to validation."""

Progress = Callable[[str, int], None]
"""Called with what is being done and how many pairs are done."""
Hashes = NDArray[np.uint64]


@dataclass
class _Count:
    kept: int = 0
    dropped: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass
class Tally:
    """Counts of one split while it is being made."""

    read: int = 0
    kept: int = 0
    held_out: int = 0
    _counts: dict[str, _Count] = field(default_factory=dict)

    def found(self, reason: str, pair: Pair, dropped: int = 0, kept: int = 0) -> None:
        """Count a finding; the first few pairs become examples."""
        count = self._counts.setdefault(reason, _Count())
        count.kept += kept
        count.dropped += dropped
        if len(count.examples) < MAX_EXAMPLES:
            count.examples.append(Example(line=pair.line, source=_cut(pair.source), target=_cut(pair.target)))

    def found_many(self, reason: str, corpus: Spool, rows: NDArray[np.int64]) -> None:
        """Count rows of a corpus that are dropped for one reason."""
        for row in rows[:MAX_EXAMPLES]:
            [pair] = corpus.pairs(int(row), int(row) + 1)
            self.found(reason, pair)
        if len(rows):
            self._counts[reason].dropped += len(rows)

    def findings(self) -> dict[str, Finding]:
        """Return what was found, in the order of `REASONS`."""
        found = {reason: self._counts[reason] for reason in REASONS if reason in self._counts}
        return {
            reason: Finding(kept=count.kept, dropped=count.dropped, examples=tuple(count.examples))
            for reason, count in found.items()
        }


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


class Spool:
    """The pairs of one corpus on disk between the passes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        marks = folder / "marks"
        self.size = marks.stat().st_size
        self.marks: NDArray[np.uint8] = np.zeros(0, np.uint8)
        if self.size:
            self.marks = np.memmap(marks, dtype=np.uint8, mode="r+")

    def pairs(self, start: int, stop: int) -> list[Pair]:
        """Return consecutive pairs."""
        stop = min(stop, self.size)
        sources = read_strings(self._folder, "source", start, stop)
        targets = read_strings(self._folder, "target", start, stop)
        lines = np.fromfile(self._folder / "lines", dtype=np.int64, count=stop - start, offset=8 * start).tolist()
        return [Pair(*columns) for columns in zip(sources, targets, lines, strict=True)]

    def hashes(self, kind: str) -> Iterator[tuple[int, Hashes]]:
        """Yield the hashes of all rows ("pair" or "source") in chunks, each with its first row."""
        for start in range(0, self.size, HASH_ROWS):
            path = self._folder / f"{kind}.hashes"
            yield start, np.fromfile(path, dtype=np.uint64, count=HASH_ROWS, offset=8 * start)


def spool(
    pairs: Iterable[Pair], folder: Path, max_characters: int, tally: Tally, progress: Callable[[int], None]
) -> Spool:
    """Write the pairs that can be used at all to disk; count the others."""
    folder.mkdir(parents=True)
    names = ("lines", "marks", "pair.hashes", "source.hashes")
    files = [(folder / name).open("wb") for name in names]
    try:
        with RaggedWriter(folder, "source", np.uint8) as sources, RaggedWriter(folder, "target", np.uint8) as targets:
            for chunk in _usable(pairs, max_characters, tally):
                source_bytes = [pair.source.encode() for pair in chunk]
                target_bytes = [pair.target.encode() for pair in chunk]
                sources.append_bytes(source_bytes)
                targets.append_bytes(target_bytes)
                columns: tuple[NDArray[Any], ...] = (
                    np.array([pair.line for pair in chunk], dtype=np.int64),
                    np.array([pair.source == pair.target for pair in chunk], dtype=np.uint8) * MARKS["copy"],
                    _hashes(_pair_key(*sides) for sides in zip(source_bytes, target_bytes, strict=True)),
                    _hashes(source_bytes),
                )
                for file, column in zip(files, columns, strict=True):
                    file.write(column.tobytes())
                progress(tally.read)
    finally:
        for file in files:
            file.close()
    return Spool(folder)


def _usable(pairs: Iterable[Pair], max_characters: int, tally: Tally) -> Iterator[list[Pair]]:
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        tally.read += 1
        if not pair.source.strip() or not pair.target.strip():
            tally.found("empty", pair, dropped=1)
            continue
        if max(len(pair.source), len(pair.target)) > max_characters:
            tally.found("too_long", pair, dropped=1)
            continue
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(chunk) == CHUNK_ROWS or characters > CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _pair_key(source: bytes, target: bytes) -> bytes:
    return b"%d\n%b%b" % (len(source), source, target)


def _hashes(texts: Iterable[bytes]) -> Hashes:
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def mark_duplicates(corpus: Spool) -> None:
    """Mark every pair that stood in the corpus before."""
    num_parts = max(1, -(-corpus.size // PART_ROWS))
    for part in range(num_parts):
        rows, hashes = [], []
        for start, chunk in corpus.hashes("pair"):
            mine = np.flatnonzero(chunk % np.uint64(num_parts) == part)
            rows.append(start + mine)
            hashes.append(chunk[mine])
        if not rows:
            return
        row, value = np.concatenate(rows), np.concatenate(hashes)
        order = np.argsort(value, kind="stable")
        repeated = value[order[1:]] == value[order[:-1]]
        corpus.marks[row[order[1:][repeated]]] |= MARKS["duplicate"]


def mark_leaks(train: Spool, others: Iterable[Spool]) -> None:
    """Mark training pairs that stand in other corpora, whole or with their source."""
    kept = list(others)
    for kind, mark in (("pair", MARKS["leaked_pair"]), ("source", MARKS["leaked_source"])):
        chunks: list[Any] = [chunk for other in kept for _, chunk in other.hashes(kind)]
        if not chunks:
            continue
        known = np.unique(np.concatenate(chunks))
        for start, chunk in train.hashes(kind):
            place = np.minimum(np.searchsorted(known, chunk), len(known) - 1)
            leaked = np.flatnonzero(known[place] == chunk) + start
            if kind == "source":  # a pair that leaked whole is counted as that
                leaked = leaked[train.marks[leaked] & MARKS["leaked_pair"] == 0]
            train.marks[leaked] |= mark


def hold_out(train: Spool, dropped: int, share: float, most: int) -> None:
    """Mark the pairs of some sources for validation: those with the smallest hashes of all that are not dropped."""
    usable = sum(int(np.count_nonzero(marks & dropped == 0)) for _, marks in _mark_chunks(train))
    wanted = min(most, max(1, round(share * usable)))
    smallest = np.zeros(0, dtype=np.uint64)
    for start, chunk in train.hashes("source"):
        usable_hashes = chunk[train.marks[start : start + len(chunk)] & dropped == 0]
        smallest = np.sort(np.concatenate([smallest, usable_hashes]))[: wanted + 1]  # a place for each pair
    whole = smallest[smallest < smallest[-1]] if len(smallest) > wanted else smallest[:0]
    last = whole[-1] if len(whole) else smallest[:1].max(initial=0)
    if not len(whole):  # the first source alone has more pairs than wanted: it goes if the larger part stays
        pairs = sum(int(np.count_nonzero(chunk <= last)) for _, chunk in train.hashes("source"))
        if 2 * pairs > usable:
            return
    for start, chunk in train.hashes("source"):
        train.marks[start + np.flatnonzero(chunk <= last)] |= HELD_OUT


def _mark_chunks(corpus: Spool) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    for start in range(0, corpus.size, HASH_ROWS):
        yield start, corpus.marks[start : start + HASH_ROWS]
