"""The first pass over corpora of pairs: write every usable pair to disk, and mark its issues.

Only files grow with the corpus: texts, 64-bit hashes and one byte of marks per pair. Equal pairs are
found by sorting hashes, a part of them at a time. Two different pairs with equal hashes would count as equal; among
20 million pairs the probability of one such collision is about 1 in 100,000.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.ragged import OFFSET, RaggedWriter, read_rows, read_strings
from transduce.data.report import MAX_EXAMPLES, CorpusCounter
from transduce.text.alignment import AlignmentFile, Links
from transduce.text.corpus import Pair

CHARACTERS_PER_TOKEN = 40
"""A line of more characters per allowed token than this is too long without being tokenised."""
MIN_RATIO_LENGTH = 5
"""A side counts as at least this many tokens when the lengths of two sides are compared."""

SIDES = ("source", "target")

Lengths = NDArray[np.int64]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True)
class LengthFilter:
    """Filters pairs that are empty, too long or of extreme ratio, by characters, then by tokens, and counts them."""

    max_length: int
    max_ratio: float
    drop_ratio: bool = True
    """Whether pairs of extreme ratio are dropped or only counted, as in validation and test corpora."""

    def keeps_text(self, pair: Pair, counter: CorpusCounter) -> bool:
        """Whether a pair is worth tokenising: neither side is empty or far too long."""
        if not pair.source.strip() or not pair.target.strip():
            counter.count("empty", [pair], dropped=1)
            return False
        max_characters = CHARACTERS_PER_TOKEN * self.max_length
        if len(pair.source) > max_characters or len(pair.target) > max_characters:
            counter.count("too_long", [pair], dropped=1)
            return False
        return True

    def keeps_tokens(
        self,
        source: Lengths,
        target: Lengths,
        prefix: tuple[int, int],
        find: Callable[[int], Pair],
        counter: CorpusCounter,
    ) -> Chosen:
        """Return which pairs of these lengths in tokens are kept; each of the others is counted for one reason.

        `prefix` are the tokens that every source and target begins with, `find` gives a pair by its place.
        """
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        kept = np.ones(len(source), dtype=np.bool_)
        empty = (source == prefix[0]) | (target == prefix[1])
        count_issue("empty", empty, kept, find, counter)  # the tokenizer drops some invisible characters
        count_issue("too_long", longer > self.max_length, kept, find, counter)
        extreme = longer > self.max_ratio * np.maximum(shorter, MIN_RATIO_LENGTH)
        count_issue("ratio", extreme, kept, find, counter, drop=self.drop_ratio)
        return kept


def count_issue(
    reason: str, found: Chosen, kept: Chosen, find: Callable[[int], Pair], counter: CorpusCounter, drop: bool = True
) -> None:
    """Count the pairs with an issue among those still kept; `drop` takes them out of `kept`."""
    places = np.flatnonzero(found & kept)
    if len(places):
        examples = [find(int(place)) for place in places[:MAX_EXAMPLES]]
        counter.count(reason, examples, **{"dropped" if drop else "kept": len(places)})
    if drop:
        kept[places] = False


CHUNK_ROWS = 4096
CHUNK_CHARACTERS = 2**23
HASH_ROWS = 2**19
"""Hashes read from disk at a time."""
PART_ROWS = 2**20
"""Hashes sorted at a time: about 50 MB of work space."""

MARKS = {"copy": 1, "leaked_pair": 2, "leaked_source": 4, "duplicate": 8}
"""Issues that are marked per pair, one bit each; ratio and length in tokens are found later."""
HELD_OUT = 128
"""The mark of a training pair that goes to validation."""

Progress = Callable[[str, int], None]
"""Called with the name of the stage and how many pairs are done."""
Hashes = NDArray[np.uint64]
Marks = NDArray[np.uint8]


class RowRange(NamedTuple):
    """Consecutive rows of one corpus."""

    corpus: int
    start: int
    stop: int


class AuditedPairs:
    """The pairs of one or several corpora, one after the other, on disk between the two passes."""

    def __init__(self, folder: Path, sizes: Sequence[int]) -> None:
        self._folder = folder
        self.bounds = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
        """Where each corpus begins; last, where all end."""
        self.size: int = self.bounds[-1]

    def pairs(self, start: int, stop: int) -> list[Pair]:
        """Return consecutive pairs."""
        lines = np.fromfile(self._folder / "lines", dtype=np.int64, count=stop - start, offset=8 * start).tolist()
        return [Pair(*columns) for columns in zip(*self.texts(start, stop), lines, strict=True)]

    def texts(self, start: int, stop: int) -> tuple[list[str], list[str]]:
        """Return consecutive sources and targets."""
        source, target = (read_strings(self._folder, side, start, stop) for side in ("source", "target"))
        return source, target

    def links(self, start: int, stop: int) -> list[Links]:
        """Return the word alignments of consecutive pairs."""
        rows = read_rows(self._folder, "links", "<u4", start, stop)
        return [[(source, target) for source, target in row.reshape(-1, 2).tolist()] for row in rows]

    def ranges(self, rows: int) -> Iterator[RowRange]:
        """Cut all rows into ranges of at most `rows`, none of which crosses from one corpus into the next."""
        for corpus, (first, end) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            for start in range(first, end, rows):
                yield RowRange(corpus, start, min(start + rows, end))

    def marks(self, start: int, stop: int) -> Marks:
        """Return the marks of consecutive rows."""
        return np.fromfile(self._folder / "marks", dtype=np.uint8, count=stop - start, offset=start)

    def add_mark(self, rows: NDArray[np.int64], mark: int) -> None:
        """Mark some rows, a part of the file at a time."""
        if not len(rows):
            return
        rows = np.sort(rows)
        first = int(rows[0]) // HASH_ROWS * HASH_ROWS
        with (self._folder / "marks").open("r+b") as file:
            for start in range(first, int(rows[-1]) + 1, HASH_ROWS):
                mine = rows[slice(*np.searchsorted(rows, [start, start + HASH_ROWS]))]
                marks = self.marks(start, min(start + HASH_ROWS, self.size))
                marks[mine - start] |= mark
                file.seek(start)
                file.write(marks.tobytes())

    def hashes(self, kind: str) -> Iterator[tuple[int, Hashes]]:
        """Yield the hashes of all rows ("pair" or "source") in chunks, each with its first row."""
        for start in range(0, self.size, HASH_ROWS):
            path = self._folder / f"{kind}.hashes"
            yield start, np.fromfile(path, dtype=np.uint64, count=HASH_ROWS, offset=8 * start)

    def marked(self, kind: str) -> Iterator[tuple[int, Hashes, Marks]]:
        """Yield hashes and marks of all rows in chunks, each with its first row."""
        for start, hashes in self.hashes(kind):
            yield start, hashes, self.marks(start, start + len(hashes))

    def count(self, rule: Callable[[Marks], NDArray[np.bool_]]) -> int:
        """Return how many rows have marks that the rule accepts."""
        starts = range(0, self.size, HASH_ROWS)
        return sum(int(np.count_nonzero(rule(self.marks(at, min(at + HASH_ROWS, self.size))))) for at in starts)


@dataclass
class _Chunk:
    """Usable pairs, as columns."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    links: list[Links] = field(default_factory=list)
    """Their word alignments."""


def audit_pairs(
    corpora: Sequence[tuple[Iterable[Pair], CorpusCounter]],
    folder: Path,
    limits: LengthFilter,
    progress: Callable[[int], None],
    languages: Sequence[str] | None = None,
    alignments: Sequence[AlignmentFile | None] | None = None,
) -> AuditedPairs:
    """Write the usable pairs to disk, corpus after corpus; count the others.

    `languages` are those of the corpora, where there are several: equal pairs of two languages are not duplicates.
    `alignments` are the word alignments of the corpora, where some have any.
    """
    folder.mkdir(parents=True)
    names = ("lines", "marks", "pair.hashes", "source.hashes")
    files = [(folder / name).open("wb") for name in names]
    sizes = []
    try:
        with ExitStack() as stack:
            sources, targets = (stack.enter_context(RaggedWriter(folder, side, np.uint8)) for side in SIDES)
            links = stack.enter_context(RaggedWriter(folder, "links", "<u4")) if alignments else None
            for at, (pairs, counter) in enumerate(corpora):
                sizes.append(0)
                before = sum(other.read for _, other in corpora[:at])
                for chunk in _usable(pairs, limits, counter, alignments[at] if alignments else None):
                    source_bytes = [text.encode() for text in chunk.sources]
                    target_bytes = [text.encode() for text in chunk.targets]
                    sources.append_bytes(source_bytes)
                    targets.append_bytes(target_bytes)
                    if links is not None:
                        links.append([[*chain.from_iterable(row)] for row in chunk.links])
                    language = "" if languages is None else languages[at]
                    for file, column in zip(files, _columns(chunk, source_bytes, target_bytes, language), strict=True):
                        file.write(column.tobytes())
                    sizes[at] += len(chunk.lines)
                    progress(before + counter.read)
    finally:
        for file in files:
            file.close()
    return AuditedPairs(folder, sizes)


def _columns(chunk: _Chunk, sources: list[bytes], targets: list[bytes], language: str) -> tuple[NDArray[Any], ...]:
    copies = list(map(str.__eq__, chunk.sources, chunk.targets))
    return (
        np.array(chunk.lines, dtype=OFFSET),
        np.array(copies, dtype=np.uint8) * np.uint8(MARKS["copy"]),
        _hashes(map(_pair_key, sources, targets, repeat(f"\n{language}".encode() if language else b""))),
        _hashes(sources),
    )


def _usable(
    pairs: Iterable[Pair], limits: LengthFilter, counter: CorpusCounter, alignment: AlignmentFile | None
) -> Iterator[_Chunk]:
    chunk = _Chunk()
    characters = 0
    for pair in pairs:
        counter.read += 1
        links = [] if alignment is None else alignment.links(*pair)
        if not limits.keeps_text(pair, counter):
            continue
        chunk.sources.append(pair.source)
        chunk.targets.append(pair.target)
        chunk.lines.append(pair.line)
        chunk.links.append(links)
        characters += len(pair.source) + len(pair.target)
        if len(chunk.lines) == CHUNK_ROWS or characters > CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = _Chunk(), 0
    if alignment is not None:
        alignment.finish()
    if chunk.lines:
        yield chunk


def _pair_key(source: bytes, target: bytes, language: bytes) -> bytes:
    return b"%d\n%b%b%b" % (len(source), source, target, language)


def _hashes(texts: Iterable[bytes]) -> Hashes:
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(text, digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


# Duplicates, leaks and the choice of validation pairs, by hashes.


def mark_duplicates(corpora: AuditedPairs, weights: Sequence[float]) -> None:
    """Mark every pair but one of those that are equal.

    The one of the corpus with the highest weight is kept, since its pairs are meant to be seen that often; among
    equals the first.
    """
    num_parts = 1
    while corpora.size > num_parts * PART_ROWS:
        num_parts *= 2
    rank = np.argsort(np.argsort(-np.array(weights), kind="stable"))
    for part in range(num_parts):
        rows, hashes = [], []
        for start, chunk in corpora.hashes("pair"):
            mine = np.flatnonzero(chunk & np.uint64(num_parts - 1) == part)
            rows.append(start + mine)
            hashes.append(chunk[mine])
        if not rows:
            return
        row, value = np.concatenate(rows), np.concatenate(hashes)
        del rows, hashes
        if len(rank) > 1:
            best = np.argsort(rank[np.searchsorted(corpora.bounds[1:], row, side="right")], kind="stable")
            row, value = row[best], value[best]
        order = np.argsort(value, kind="stable")
        repeated = value[order[1:]] == value[order[:-1]]
        corpora.add_mark(row[order[1:][repeated]], MARKS["duplicate"])


def mark_leaks(train: AuditedPairs, others: Iterable[AuditedPairs]) -> None:
    """Mark training pairs that occur in other splits, as a pair or by their source alone."""
    kept = list(others)
    for kind, mark in (("pair", MARKS["leaked_pair"]), ("source", MARKS["leaked_source"])):
        chunks: list[Any] = [chunk for other in kept for _, chunk in other.hashes(kind)]
        if not chunks:
            continue
        known = np.unique(np.concatenate(chunks))
        for start, chunk, marks in train.marked(kind):
            place = np.minimum(np.searchsorted(known, chunk), len(known) - 1)
            leaked = known[place] == chunk
            if kind == "source":  # a pair that leaked with its target is counted as that
                leaked &= marks & MARKS["leaked_pair"] == 0
            train.add_mark(start + np.flatnonzero(leaked), mark)


TRIES = 16
"""Sources with more pairs than wanted that are skipped, before one is taken anyway."""


def hold_out(train: AuditedPairs, dropped: int, share: float, most: int) -> None:
    """Mark the pairs of some sources for validation: those with the smallest hashes of all that are not dropped.

    All pairs of a source go together. A source with more pairs than wanted is skipped; where all have more, the first
    is taken if that leaves at least half of the pairs.
    """
    usable = train.count(lambda marks: marks & dropped == 0)
    wanted = min(most, max(1, round(share * usable)))
    first = smallest = _smallest(train, dropped, wanted)
    held = first[:0]
    for _ in range(TRIES):
        if len(smallest) > wanted:
            held = smallest[smallest < smallest[-1]]
        elif smallest is not first:  # all that is left
            held = smallest
        if len(held) or len(smallest) <= wanted:
            break
        smallest = _smallest(train, dropped, wanted, above=smallest[0])
    if not len(held):
        held = first[:1]
        pairs = 0
        for _, chunk, marks in train.marked("source"):
            pairs += int(np.count_nonzero(np.isin(chunk, held) & (marks & dropped == 0)))
        if 2 * pairs > usable:
            return
    for start, chunk in train.hashes("source"):
        train.add_mark(start + np.flatnonzero(np.isin(chunk, held)), HELD_OUT)


def _smallest(train: AuditedPairs, dropped: int, wanted: int, above: np.uint64 | None = None) -> Hashes:
    """Return the smallest hashes of usable sources (above one of them), one for each pair, and one more than wanted."""
    smallest = np.zeros(0, dtype=np.uint64)
    for _, chunk, marks in train.marked("source"):
        mine = chunk[marks & dropped == 0]
        mine = mine if above is None else mine[mine > above]
        smallest = np.sort(np.concatenate([smallest, mine]))[: wanted + 1]
    return smallest
