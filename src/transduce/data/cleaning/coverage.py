"""How well a target covers the words of a source, by which words translate which in the other half of the corpus.

A lexicon (IBM Model 1) is learned on each half and judges the pairs of the other: a pair is no evidence for itself.
A word gains the logarithm of how much likelier it becomes by its best counterpart in the pair, and is expected to gain
what it gained in the pairs of the lexicon; one of which the lexicon knows little is expected to gain little. Equal
words (names, numbers) are counterparts. Coverage is the gain of a pair as a fraction of the expected one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.cleaning.words import VOCABULARY
from transduce.data.lexicon import PairSample, learn_lexicon
from transduce.data.ragged import Ragged, RaggedWriter, take_rows

Rows = NDArray[np.int64]
Numbers = NDArray[np.float64]

MAX_CELLS = 2**24
"""Pairs of words that a lexicon is learned from; of a larger corpus, a sample of pairs is taken."""
ROUNDS = 4
DISCOUNT = 0.3
"""Taken from each count: what was seen once is worth little."""
SCALE = 0.5
"""A word gains log(1 + SCALE × lift)."""
PSEUDO_GAIN = 3.0
"""Added to both gains: a pair of which little is expected is not judged by a word or two."""
COPY_LIFT = 0.06
"""Likelihood of an equal word, as a share of what a word that was seen once with its counterpart has."""
CHUNK_CELLS = 2**20


class Scores(NamedTuple):
    """The gain of pairs, and the expected gain."""

    gain: Numbers
    expected: Numbers

    @property
    def coverage(self) -> Numbers:
        """The first as a fraction of the second, where both have a little more."""
        return (self.gain + PSEUDO_GAIN) / (self.expected + PSEUDO_GAIN)


@dataclass(frozen=True)
class Coverage:
    """What one half of a corpus says about the words of a pair."""

    keys: Rows
    """Pairs of words, sorted."""
    lift: Numbers
    """How much likelier a target word is, given the source word."""
    source_counts: Rows
    target_counts: Rows
    source_gains: Numbers
    """The expected gain of each source word."""
    target_gains: Numbers

    @classmethod
    def learn(cls, sources: Ragged, targets: Ragged) -> Coverage:
        """Learn from pairs of rows of words."""
        sample = PairSample.of(sources, targets, MAX_CELLS)
        found = learn_lexicon(sources, targets, VOCABULARY, VOCABULARY, rounds=ROUNDS, sample=sample)
        rows = sample.rows(0, sample.taken)
        source_words, _ = sources.take(rows)
        target_words, _ = targets.take(rows)
        source_counts = np.bincount(source_words, minlength=VOCABULARY)
        target_counts = np.bincount(target_words, minlength=VOCABULARY)
        expected = (
            (source_counts[found.sources] + 0.5) * (target_counts[found.targets] + 0.5) / max(1, len(target_words))
        )
        lift = np.maximum(found.counts - DISCOUNT, 0.0) / expected
        kept = lift > 0
        keys = found.sources[kept] * VOCABULARY + found.targets[kept]
        gains = np.maximum(found.counts - DISCOUNT, 0.0) * np.log1p(SCALE * lift)
        expected_gains = (
            np.bincount(words, weights=gains, minlength=VOCABULARY) / np.maximum(1, counts)
            for words, counts in ((found.sources, source_counts), (found.targets, target_counts))
        )
        return cls(keys, lift[kept], source_counts, target_counts, *expected_gains)

    def score(self, sources: tuple[Rows, Rows], targets: tuple[Rows, Rows]) -> Scores:
        """Score pairs; each side as the words of all rows one after the other, and the number of each row's."""
        (source, source_lengths), (target, target_lengths) = sources, targets
        pair = np.repeat(np.arange(len(target_lengths)), target_lengths)
        ends = np.cumsum(source_lengths)
        starts = ends - source_lengths
        place, widths = take_rows(np.arange(len(source)), starts[pair], ends[pair])
        ours, theirs = source[place], np.repeat(target, widths)
        lift = self.lift_of(ours, theirs)
        best_target = np.zeros(len(target))
        filled = np.flatnonzero(widths)
        if len(filled):
            best_target[filled] = np.maximum.reduceat(lift, (np.cumsum(widths) - widths)[filled])
        best_source = np.zeros(len(source))
        np.maximum.at(best_source, place, lift)
        owner = np.repeat(np.arange(len(source_lengths)), source_lengths)
        gain, expected = np.zeros(len(source_lengths)), np.zeros(len(source_lengths))
        for best, gains, rows in (
            (best_target, self.target_gains[target], pair),
            (best_source, self.source_gains[source], owner),
        ):
            gain += np.bincount(rows, weights=np.log1p(SCALE * best), minlength=len(gain))
            expected += np.bincount(rows, weights=gains, minlength=len(gain))
        return Scores(gain, expected)

    def lift_of(self, source: Rows, target: Rows) -> Numbers:
        """Return how much likelier each target word is, given the source word."""
        keys = source * VOCABULARY + target
        lift = np.zeros(len(keys))
        if len(self.keys):
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            lift = np.where(self.keys[place] == keys, self.lift[place], 0.0)
        equal = np.flatnonzero(source == target)
        counts = (self.source_counts[source[equal]] + 1.0) * (self.target_counts[target[equal]] + 1.0)
        lift[equal] = np.maximum(lift[equal], COPY_LIFT * self.target_counts.sum() / np.sqrt(counts))
        return lift


class CrossCoverage:
    """Scores any source with any target of a corpus, by the half that the source is not in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers = {
            name: RaggedWriter(folder, name, np.uint32)
            for name in ("all.source", "all.target", "0.source", "0.target", "1.source", "1.target")
        }
        self._size = 0

    def add(self, sources: list[list[int]], targets: list[list[int]], learned: NDArray[np.bool_]) -> None:
        """Add the words of pairs, in order; the lexicons are learned from some of them."""
        self._writers["all.source"].append(sources)
        self._writers["all.target"].append(targets)
        for half in (0, 1):
            rows = [row for row in np.flatnonzero(learned).tolist() if (self._size + row) % 2 == half]
            self._writers[f"{half}.source"].append([sources[row] for row in rows])
            self._writers[f"{half}.target"].append([targets[row] for row in rows])
        self._size += len(sources)

    def learn(self) -> None:
        """Learn both lexicons."""
        for writer in self._writers.values():
            writer.__exit__(None, None, None)
        opened = {name: Ragged.open(self._folder, name, np.dtype("<u4")) for name in self._writers}
        self._sources, self._targets = opened["all.source"], opened["all.target"]
        self._halves = [Coverage.learn(opened[f"{half}.source"], opened[f"{half}.target"]) for half in (0, 1)]

    def target_words(self, rows: Rows) -> Rows:
        """Return the number of words of targets."""
        return self._targets.lengths[rows]

    def score(self, sources: Rows, targets: Rows) -> Scores:
        """Score the pairs of these rows."""
        gain, expected = np.zeros(len(sources)), np.zeros(len(sources))
        cells = self._sources.lengths[sources] * self._targets.lengths[targets]
        for half in (0, 1):
            mine = np.flatnonzero(sources % 2 != half)
            group = np.cumsum(cells[mine]) // CHUNK_CELLS
            for part in np.split(mine, np.flatnonzero(np.diff(group)) + 1):
                if len(part):
                    taken = (
                        (tokens.astype(np.int64), lengths)
                        for tokens, lengths in (
                            self._sources.take(sources[part]),
                            self._targets.take(targets[part]),
                        )
                    )
                    gain[part], expected[part] = self._halves[half].score(*taken)
        return Scores(gain, expected)
