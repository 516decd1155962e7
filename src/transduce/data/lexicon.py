"""Lexical translation counts of a corpus: IBM Model 1 (Brown et al. 1993).

Every target token of a pair is aligned to one of its source tokens, or to none (NULL). The alignment is not known, so
its expectation under the last round's counts is taken (EM), starting from uniform. Differs from the paper: rare
co-occurrences may be pruned when the table of a huge corpus is full.

The table holds one number for each pair of tokens that was seen together, sorted by `source × targets + target`. The
corpus is read in chunks, so memory depends on the table and not on the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.ragged import Ragged, take_rows

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]

ROUNDS = 5
MAX_CELLS = 2**27
"""Maximum cells (a target token with a source token) of a round; of a larger corpus, a sample of pairs is taken."""
CHUNK_CELLS = 2**20
"""Approximate number of cells in memory at once; a pair that alone has more is skipped."""
CHUNK_ROWS = 2**14
MAX_ENTRIES = 2**23
"""Maximum entries of the table; beyond it, those with the smallest counts are pruned."""


class PairSample(NamedTuple):
    """Which pairs of a corpus are used: `taken` of `all`, evenly spread."""

    taken: int
    all: int
    too_long: int = 0
    """Pairs of the corpus with more cells than fit into memory at once; they are skipped."""
    empty: int = 0
    """Pairs of the corpus with an empty side: they only count for the frequency of tokens."""

    @classmethod
    def of(cls, sources: Ragged, targets: Ragged, max_cells: int = MAX_CELLS) -> PairSample:
        """Take as many pairs as the cells allow; always the same of the same corpus."""
        count, cells, too_long, empty = len(sources), 0, 0, 0
        for start in range(0, count, CHUNK_ROWS):
            rows = np.arange(start, min(start + CHUNK_ROWS, count))
            size = (sources.lengths[rows] + 1) * targets.lengths[rows]
            fits = size <= CHUNK_CELLS
            cells += int(size[fits].sum())
            too_long += int((~fits).sum())
            empty += int((fits & ((sources.lengths[rows] == 0) | (size == 0))).sum())
        return cls(count if cells <= max_cells else max(1, count * max_cells // cells), count, too_long, empty)

    def rows(self, start: int, stop: int) -> Integers:
        """Return the rows of some of the pairs in the sample."""
        return np.arange(start, min(stop, self.taken)) * self.all // max(1, self.taken)


@dataclass(frozen=True)
class Lexicon:
    """Expected counts: how often a target token was the translation of a source token, without NULL."""

    sources: Integers
    targets: Integers
    counts: Numbers
    """One for each pair of the two above."""
    source_size: int
    target_size: int
    frequency: Integers
    """How often each target token occurs in the corpus."""
    sample: PairSample


def learn_lexicon(
    sources: Ragged,
    targets: Ragged,
    source_size: int,
    target_size: int,
    rounds: int = ROUNDS,
    sample: PairSample | None = None,
    progress: Callable[[str, int], None] = lambda stage, count: None,
) -> Lexicon:
    """Estimate the counts over a corpus, for vocabularies of these sizes; a pure function of the corpus."""
    sample = sample or PairSample.of(sources, targets)
    frequency = np.zeros(target_size, dtype=np.int64)
    table = Table(never_pruned=source_size * target_size)
    done = 0
    for number in range(rounds):

        def expected(chunk: Chunk, cells: Cells, likelihood: Numbers, first: bool = number == 0) -> Numbers:
            nonlocal done, frequency
            if first:
                frequency += np.bincount(chunk.targets, minlength=target_size)
            done += len(chunk.target_lengths)
            progress(f"aligning {rounds} times", done)
            return cells.expected(likelihood)

        expect(table, read_sample(sources, targets, sample, source_size), target_size, expected)
        if number + 1 < rounds:
            table.values = _normalised(table.keys // target_size, table.values, source_size + 1)
    real = (table.keys < source_size * target_size) & (table.values > 0)
    keys, values = table.keys[real], table.values[real]
    return Lexicon(keys // target_size, keys % target_size, values, source_size, target_size, frequency, sample)


class Table:
    """Numbers by key, sorted by it."""

    def __init__(self, never_pruned: int) -> None:
        self.keys: Integers = np.zeros(0, dtype=np.int64)
        self.values: Numbers = np.zeros(0)
        self._never_pruned = never_pruned
        """Keys from here on, those of NULL, are always kept: each target token must be aligned to something."""

    def places(self, keys: Integers) -> tuple[Integers, NDArray[np.bool_]]:
        """Return the places of keys, and whether they are there: some may have been pruned."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return place, self.keys[place] == keys

    def add(self, keys: Integers, values: Numbers) -> None:
        """Add numbers to those of the same keys; the keys are sorted, each once."""
        together = np.concatenate([self.keys, keys])
        order = np.argsort(together, kind="stable")  # fast for two sorted runs
        together = together[order]
        first = np.flatnonzero(np.diff(together, prepend=-1))
        self.keys = together[first]
        self.values = np.add.reduceat(np.concatenate([self.values, values])[order], first)
        if len(self.keys) > MAX_ENTRIES:
            self._prune()

    def _prune(self) -> None:
        """Keep the half with the largest values, and the entries of NULL."""
        kept = (self.values > np.median(self.values)) | (self.keys >= self._never_pruned)
        self.keys, self.values = self.keys[kept], self.values[kept]


def expect(
    table: Table, chunks: Iterable[Chunk], target_size: int, expected: Callable[[Chunk, Cells, Numbers], Numbers]
) -> None:
    """Replace the probabilities of a table by expected counts: a round of EM. An empty table is filled from uniform.

    `expected` distributes the target tokens of a chunk over its cells, given the likelihood of each key.
    """
    fills, counts = not len(table.keys), np.zeros(len(table.keys))
    for chunk in chunks:
        cells = chunk.cells(target_size)
        if fills:
            table.add(cells.keys, expected(chunk, cells, np.ones(len(cells.keys))))
        else:
            place, found = table.places(cells.keys)
            sums = expected(chunk, cells, np.where(found, table.values[place], 0.0))
            counts[place[found]] += sums[found]
    if not fills:
        table.values = counts


@dataclass(frozen=True)
class Cells:
    """Every target token with every source token of its pair, including NULL."""

    keys: Integers
    """Keys of the pairs of tokens, sorted, each once."""
    which: Integers
    """The place of each cell's key."""
    widths: Integers
    """How many cells each target token has, one after the other."""

    def expected(self, likelihood: Numbers) -> Numbers:
        """Distribute each target token over its cells by the likelihood of their keys; return the sums by key."""
        return self.sums(self.shares(likelihood[self.which]))

    def shares(self, weights: Numbers) -> Numbers:
        """Distribute each target token over its cells in proportion to weights of the cells."""
        starts = np.cumsum(self.widths) - self.widths
        shares: Numbers = weights / np.repeat(np.add.reduceat(weights, starts), self.widths)
        return shares

    def sums(self, shares: Numbers) -> Numbers:
        """Add up values of the cells by key."""
        return np.bincount(self.which, weights=shares, minlength=len(self.keys)).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Chunk:
    """Some pairs: their tokens one after the other. Each source has NULL in front of it."""

    sources: Integers
    source_lengths: Integers
    targets: Integers
    target_lengths: Integers

    def cells(self, target_size: int) -> Cells:
        """Return all combinations of tokens of each pair."""
        ends = np.cumsum(self.source_lengths)
        pair = np.repeat(np.arange(len(ends)), self.target_lengths)
        sources, widths = take_rows(self.sources, (ends - self.source_lengths)[pair], ends[pair])
        keys, which = np.unique(sources * target_size + np.repeat(self.targets, widths), return_inverse=True)
        return Cells(keys, which, widths)


def read_sample(sources: Ragged, targets: Ragged, sample: PairSample, null: int) -> Iterator[Chunk]:
    """Read the pairs of a sample in chunks."""
    for start in range(0, sample.taken, CHUNK_ROWS):
        for part in split_rows(sources, targets, sample.rows(start, start + CHUNK_ROWS)):
            yield read_chunk(sources, targets, part, null)


def split_rows(sources: Ragged, targets: Ragged, rows: Integers) -> Iterator[Integers]:
    """Split rows into chunks of about `CHUNK_CELLS`, without those that have none, or more than that alone."""
    cells = (sources.lengths[rows] + 1) * targets.lengths[rows]
    usable = (cells > 0) & (cells <= CHUNK_CELLS)
    rows, cells = rows[usable], cells[usable]
    group = np.cumsum(cells) // CHUNK_CELLS
    yield from filter(len, np.split(rows, np.flatnonzero(np.diff(group)) + 1))


def read_chunk(sources: Ragged, targets: Ragged, rows: Integers, null: int) -> Chunk:
    """Read some pairs; `null` is the number of NULL, which precedes each source."""
    source_tokens, source_lengths = sources.take(rows)
    target_tokens, target_lengths = targets.take(rows)
    starts = np.cumsum(source_lengths) - source_lengths
    with_null = np.insert(source_tokens.astype(np.int64), starts, null)
    return Chunk(with_null, source_lengths + 1, target_tokens.astype(np.int64), target_lengths)


def _normalised(groups: Integers, values: Numbers, size: int) -> Numbers:
    """Normalise values within groups: counts become probabilities of a target token given its source."""
    total = np.bincount(groups, weights=values, minlength=size)[groups]
    return np.divide(values, total, out=np.zeros_like(values), where=total > 0)
