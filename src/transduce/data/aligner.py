"""Alignment of the tokens of a corpus by their co-occurrence, for guided alignment.

The model is that of fast_align (Dyer, Chahuneau & Smith 2013): IBM Model 1 (`data.lexicon`), but a target token prefers
source tokens near the diagonal; how much (the tension) is learned too. Translation probabilities have a Dirichlet prior
(mean-field, as in fast_align), so that rare tokens do not attract everything. Both directions are learned, and the
links that they agree on are kept: precision matters more than recall, since a token without a link is just not guided.

Differs from fast_align: the tension takes one Newton step each round instead of eight gradient steps; a huge corpus is
learned from a sample, as in `data.lexicon`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from transduce.data.lexicon import (
    Cells,
    Chunk,
    Integers,
    Numbers,
    PairSample,
    Table,
    expect,
    read_chunk,
    read_sample,
    split_rows,
)
from transduce.data.ragged import Ragged

ROUNDS = 5
NULL_SHARE = 0.08
"""Prior probability that a target token is aligned to none."""
CONCENTRATION = 0.01
"""Of the Dirichlet prior: small values prefer few translations for each token."""
TINY = 1e-300
FIRST_TENSION, LEAST_TENSION, MOST_TENSION = 4.0, 0.1, 14.0


@dataclass
class Aligner:
    """Aligns the target tokens of one direction."""

    table: Table
    """Translation probabilities."""
    target_size: int
    tension: float = FIRST_TENSION

    @classmethod
    def learn(
        cls, sides: tuple[Ragged, Ragged], sizes: tuple[int, int], sample: PairSample, progress: Callable[[int], None]
    ) -> Aligner:
        """Learn from the pairs of a sample; a pure function of the corpus."""
        aligner, done = cls(Table(never_pruned=sizes[0] * sizes[1]), sizes[1]), 0
        for _ in range(ROUNDS):
            step = _TensionStep()

            def expected(chunk: Chunk, cells: Cells, likelihood: Numbers, step: _TensionStep = step) -> Numbers:
                nonlocal done
                distance = _distances(chunk)
                prior = aligner.prior(cells, distance)
                shares = cells.shares(likelihood[cells.which] * prior)
                step.add(cells, distance, prior, shares)
                done += len(chunk.target_lengths)
                progress(done)
                return cells.sums(shares)

            expect(aligner.table, read_sample(*sides, sample, sizes[0]), sizes[1], expected)
            aligner.tension = float(np.clip(aligner.tension + step.size, LEAST_TENSION, MOST_TENSION))
            sources = aligner.table.keys // sizes[1]
            aligner.table.values = _mean_field(sources, aligner.table.values, sizes[0] + 1)
        return aligner

    def prior(self, cells: Cells, distance: Numbers) -> Numbers:
        """Return the prior probability of each cell; the distance of NULL is not a number."""
        is_null = np.isnan(distance)
        near = np.where(is_null, TINY, np.exp(-self.tension * distance))  # TINY: a pair without a source has NULL alone
        prior: Numbers = np.where(is_null, NULL_SHARE, (1.0 - NULL_SHARE) * cells.shares(near))
        return prior

    def best(self, chunk: Chunk) -> Integers:
        """Return the place of the best source token for each target token of a chunk, from 1; 0 is NULL."""
        cells = chunk.cells(self.target_size)
        place, found = self.table.places(cells.keys)
        weights = np.where(found, self.table.values[place], 0.0)[cells.which] * self.prior(cells, _distances(chunk))
        starts = np.cumsum(cells.widths) - cells.widths
        is_best = weights == np.repeat(np.maximum.reduceat(weights, starts), cells.widths)
        first = np.flatnonzero(is_best)
        token = np.repeat(np.arange(len(starts)), cells.widths)[first]
        return (first[np.flatnonzero(np.diff(token, prepend=-1))] - starts).astype(np.int64)


class _TensionStep:
    """One Newton step of the tension towards the maximum likelihood, from expectations over a round."""

    def __init__(self) -> None:
        self._slope = self._curvature = 0.0

    def add(self, cells: Cells, distance: Numbers, prior: Numbers, shares: Numbers) -> None:
        distance = np.nan_to_num(distance)
        starts = np.cumsum(cells.widths) - cells.widths
        linked = 1.0 - shares[starts]  # all but NULL, which comes first
        mean, square = (np.add.reduceat(prior * distance**power, starts) / (1 - NULL_SHARE) for power in (1, 2))
        self._slope += float(linked @ mean - shares @ distance)
        self._curvature += float(linked @ (square - mean**2))

    @property
    def size(self) -> float:
        return self._slope / self._curvature if self._curvature > 0 else 0.0


def _distances(chunk: Chunk) -> Numbers:
    """Return how far each cell is from the diagonal, |i/m - j/n|; not a number for NULL."""
    lengths = np.repeat(chunk.target_lengths, chunk.target_lengths)
    widths = np.repeat(chunk.source_lengths, chunk.target_lengths)
    place, column = _places(chunk.target_lengths), _places(widths)
    across = column / np.repeat(np.maximum(widths - 1, 1), widths)
    distance = np.abs(np.repeat((place + 1) / lengths, widths) - across)
    return np.where(column == 0, np.nan, distance)


def _mean_field(groups: Integers, counts: Numbers, size: int) -> Numbers:
    """Return exp E[log p] of the translation probabilities within each group, given their expected counts."""
    totals = np.bincount(groups, weights=counts + CONCENTRATION, minlength=size)
    found: Numbers = np.exp(_digamma(counts + CONCENTRATION) - _digamma(np.maximum(totals, CONCENTRATION))[groups])
    return found


def _digamma(values: Numbers) -> Numbers:
    """Return the derivative of log Γ: the recurrence up to values above 6, then the asymptotic series."""
    below = sum((1.0 / (values + step) for step in range(6)), np.zeros_like(values))
    above = values + 6.0
    inverse = above**-2.0
    series: Numbers = np.log(above) - 0.5 / above - inverse * (1 / 12 - inverse * (1 / 120 - inverse / 252)) - below
    return series


Align = Callable[[Integers, tuple[int, int]], tuple[Integers, Integers]]
"""(rows, number of first target and source tokens to leave out) -> the links of all rows, their numbers per row."""


def align_corpus(
    sides: tuple[Ragged, Ragged],
    sizes: tuple[int, int],
    progress: Callable[[str, int], None] = lambda stage, count: None,
) -> Align:
    """Learn to align the tokens of a corpus, and return what aligns consecutive or other sorted rows.

    The links of a row are target token, source token, target token, …; a pair that is far too long has none.
    """
    source, target = sides
    sample = PairSample.of(source, target)
    forward = Aligner.learn((source, target), sizes, sample, lambda done: progress("aligning targets", done))
    backward = Aligner.learn((target, source), sizes[::-1], sample, lambda done: progress("aligning sources", done))

    def align(rows: Integers, first: tuple[int, int]) -> tuple[Integers, Integers]:
        lengths, found = np.zeros(len(rows), dtype=np.int64), [np.zeros((0, 2), dtype=np.int64)]
        for part in split_rows(source, target, rows[source.lengths[rows] > 0]):
            chunk, back = read_chunk(source, target, part, sizes[0]), read_chunk(target, source, part, sizes[1])
            links, pair = _agreed(chunk, forward.best(chunk), backward.best(back))
            kept = (links >= first).all(axis=1)
            found.append(links[kept])
            lengths[np.searchsorted(rows, part)] = 2 * np.bincount(pair[kept], minlength=len(part))
        return np.concatenate(found).reshape(-1), lengths

    return align


def _agreed(chunk: Chunk, source_of: Integers, target_of: Integers) -> tuple[Integers, Integers]:
    """Return the links that both directions agree on, and the pair of each; places count from 1, 0 is none."""
    lengths, place = chunk.target_lengths, _places(chunk.target_lengths)
    starts = np.cumsum(chunk.source_lengths - 1) - chunk.source_lengths + 1
    back = np.append(target_of, 0)[np.repeat(starts, lengths) + source_of - 1]
    agreed = (source_of > 0) & (back == place + 1)
    links = np.stack([place, source_of - 1], axis=1)
    return links[agreed], np.repeat(np.arange(len(lengths)), lengths)[agreed]


def _places(lengths: Integers) -> Integers:
    """Return the place of each value in its row, for rows that follow each other in one array."""
    places: Integers = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return places
