"""Which pairs of a corpus are misaligned, and which target belongs to the source instead, if one nearby does.

Scores of the corpus' own pairs are compared with those of random pairs. What share of the corpus looks random is
estimated first, so that next to nothing is removed from a clean corpus. Then the Viterbi algorithm decides line by
line whether the target is in its place, shifted by some lines, or absent; changing between these costs, so that a run
of shifted lines is recognised as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.cleaning.coverage import CrossCoverage, Rows, Scores
from transduce.rng import generator

Numbers = NDArray[np.float64]

SAMPLE = 20_000
"""Random pairs, and pairs of the corpus, that distributions are estimated from."""
MIN_PAIRS = 200
"""Fewer pairs say too little."""
STRATUM = 400
"""Pairs of a group of similar length, at least."""
MAX_STRATA = 12
LEVELS = np.arange(0.3, 0.71, 0.05)
"""Fractions of random pairs below which the corpus' own pairs are counted."""
MAX_SHARE = 0.4
"""A corpus of which more looks random is not judged: the lexicon cannot tell, or most of it is no bitext."""
TOP = 0.95
MAX_OVERLAP = 0.12
"""Nor is a corpus of which more true pairs than this score lower than the highest random ones."""
BINS = 16
MAX_EVIDENCE = 7.0
"""Maximum log-likelihood ratio of one line: histograms do not support more."""
SHIFT_SHARE = 1e-3
"""Prior probability that a run of shifted lines begins at a line."""
CAUTION = 1.5
"""How many times likelier than not a pair must be misaligned to be removed."""
END_SHARE = 0.05
"""Prior probability that a run ends at a line."""


@dataclass(frozen=True)
class Stratum:
    """Pairs with about as many words: log-likelihood ratios of true to random pairs by score."""

    edges: Numbers
    ratios: Numbers

    @classmethod
    def learn(cls, own: Numbers, random: Numbers, share: float) -> Stratum:
        """Estimate the ratios, which rise with the score, from scores of which a share is as of random pairs."""
        edges = np.unique(np.quantile(np.concatenate([own, random]), np.linspace(0, 1, BINS + 1)[1:-1]))
        size = len(edges) + 1
        observed = np.bincount(np.searchsorted(edges, own), minlength=size) / len(own)
        null = np.bincount(np.searchsorted(edges, random), minlength=size) / len(random)
        # A random pair of the corpus may fall into any bin: what it adds is taken away before bins are pooled.
        true = _rising(observed - share * null, np.maximum(null, 0.5 / len(random)))
        ratios = np.log(np.maximum(true, 0.0) + 0.5 / len(own)) - np.log(1 - share)
        return cls(edges, np.clip(ratios, -MAX_EVIDENCE, MAX_EVIDENCE))

    def __call__(self, scores: Numbers) -> Numbers:
        found: Numbers = self.ratios[np.searchsorted(self.edges, scores)]
        return found


def _rising(numerators: Numbers, denominators: Numbers) -> Numbers:
    """Return quotients that never fall: where one does, both are pooled (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for numerator, denominator in zip(numerators.tolist(), denominators.tolist(), strict=True):
        blocks.append([numerator, denominator, 1])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] > blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = [one + other for one, other in zip(blocks[-1], last, strict=True)]
    return np.repeat([block[0] / block[1] for block in blocks], [int(block[2]) for block in blocks])


@dataclass(frozen=True)
class Judge:
    """Turns scores into log-likelihood ratios of a true pair to a random one."""

    bounds: Numbers
    """Numbers of words between strata."""
    strata: list[Stratum]
    share: float
    """Estimated share of the corpus that is misaligned."""
    overlap: float
    """Estimated share of it that is not, but does not score higher than random pairs."""

    @classmethod
    def learn(cls, own: Scores, random: Scores) -> Judge:
        """Learn from scores of the corpus' own pairs and of random ones."""
        count = int(np.clip(min(len(own.expected), len(random.expected)) // STRATUM, 1, MAX_STRATA))
        bounds = np.unique(np.quantile(own.expected, np.linspace(0, 1, count + 1)[1:-1])) if count > 1 else np.zeros(0)
        ours, theirs = (np.searchsorted(bounds, scores.expected) for scores in (own, random))
        parts = [
            (own.coverage[ours == stratum], random.coverage[theirs == stratum]) for stratum in range(len(bounds) + 1)
        ]
        levels = np.concatenate([_levels(*part) for part in parts if len(part[0]) and len(part[1])])
        if not len(levels):
            return cls(bounds, [], 1.0, 1.0)
        share = _share(levels)
        overlap = float(np.mean(levels < TOP)) - TOP * share
        return cls(bounds, [_stratum(*part, min(share, MAX_SHARE)) for part in parts], share, overlap)

    def __call__(self, scores: Scores) -> Numbers:
        """Return the ratios; 0 where no word is known."""
        found = np.zeros(len(scores.expected))
        groups, means = np.searchsorted(self.bounds, scores.expected), scores.coverage
        for number, stratum in enumerate(self.strata):
            mine = groups == number
            found[mine] = stratum(means[mine])
        found[scores.expected == 0] = 0.0
        return found


def _levels(own: Numbers, random: Numbers) -> Numbers:
    """Return for each of the corpus' own pairs the fraction of random pairs with a lower score."""
    ordered = np.sort(random)
    below, upto = (np.searchsorted(ordered, own, side=side) for side in ("left", "right"))
    found: Numbers = (below + upto) / (2 * len(ordered))
    return found


def _share(levels: Numbers) -> float:
    """Estimate the share of pairs that are as random ones, whose levels are uniform."""
    return float(np.clip(np.median([np.mean(levels < level) / level for level in LEVELS]), 1e-4, 1.0))


def _stratum(own: Numbers, random: Numbers, share: float) -> Stratum:
    """Learn a stratum, whose share may exceed that of the corpus as much as it does by accident (two deviations)."""
    if len(own) < MIN_PAIRS // 4 or len(random) < MIN_PAIRS // 4:
        return Stratum(np.zeros(0), np.zeros(1))
    most = share + 2 * float(np.sqrt(share / len(own)))
    return Stratum.learn(own, random, float(np.clip(_share(_levels(own, random)), share, most)))


class Alignment(NamedTuple):
    """What is wrong with the alignment of a corpus."""

    misaligned: Rows
    """Rows whose target is no translation of the source; it may belong to another row."""
    realigned: dict[int, int]
    """Rows whose target was found in another row."""
    share: float
    note: str | None = None


def find_misaligned(coverage: CrossCoverage, rows: Rows, max_shift: int, size: int) -> Alignment:
    """Judge some rows of a corpus of `size`; targets may be shifted by `max_shift` rows at most."""
    if len(rows) < MIN_PAIRS:
        return Alignment(rows[:0], {}, 0.0, f"misaligned pairs are not looked for in fewer than {MIN_PAIRS} pairs")
    sample = rows[np.arange(min(len(rows), SAMPLE)) * len(rows) // min(len(rows), SAMPLE)]
    judge = Judge.learn(coverage.score(sample, sample), coverage.score(*_random_pairs(coverage, rows, sample)))
    if judge.share > MAX_SHARE or judge.overlap > MAX_OVERLAP:
        look_random = 100 * min(1.0, judge.share + judge.overlap)
        return Alignment(
            rows[:0],
            {},
            judge.share,
            f"misaligned pairs were not removed: by its words, {look_random:.0f} % of the corpus could be "
            "random pairs (it is small, or most of it is misaligned)",
        )
    ratios = np.zeros(size)
    for start in range(0, len(rows), 2**16):
        part = rows[start : start + 2**16]
        ratios[part] = judge(coverage.score(part, part))
    judged = np.zeros(size, dtype=np.bool_)
    judged[rows] = True
    misaligned, realigned = [], {}
    for start, stop in _suspects(ratios, judged, max_shift):
        states = _states(coverage, judge, judged, (start, stop), max_shift)
        for row, state in zip(range(start, stop), states, strict=True):
            if state is None and judged[row]:
                misaligned.append(row)
            elif state:
                realigned[row] = row + state
    return Alignment(np.array(misaligned, dtype=np.int64), realigned, judge.share)


def _random_pairs(coverage: CrossCoverage, rows: Rows, sample: Rows) -> tuple[Rows, Rows]:
    """Return sources, and for each a random target of another row, with about as many words as its own."""
    order = rows[np.argsort(coverage.target_words(rows), kind="stable")]
    place = np.empty(int(rows.max()) + 1, dtype=np.int64)
    place[order] = np.arange(len(order))
    width = max(10, len(rows) // 50)
    random = generator("clean", len(rows))
    distance = random.integers(1, width, len(sample)) * random.choice([-1, 1], len(sample))
    return sample, order[(place[sample] + distance) % len(order)]


def _suspects(ratios: Numbers, judged: NDArray[np.bool_], margin: int) -> list[tuple[int, int]]:
    """Return ranges of rows around those that look random."""
    found: list[tuple[int, int]] = []
    for row in np.flatnonzero(judged & (ratios < 0)).tolist():
        start, stop = max(0, row - margin), min(len(ratios), row + margin + 1)
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _states(
    coverage: CrossCoverage, judge: Judge, judged: NDArray[np.bool_], bounds: tuple[int, int], most: int
) -> list[int | None]:
    """Return for each row of a range by how many rows its target is shifted, or None if it has none."""
    start, stop = bounds
    rows = np.arange(start, stop)
    shifts = [0, *(shift for size in range(1, most + 1) for shift in (size, -size))]
    ratios = np.full((len(shifts) + 1, len(rows)), -MAX_EVIDENCE)
    ratios[-1] = 0.0  # of no target
    for number, shift in enumerate(shifts):
        inside = (rows + shift >= 0) & (rows + shift < len(judged))
        found = np.zeros(int(inside.sum()))
        here = rows[inside]
        usable = judged[here] & judged[here + shift]
        found[usable] = judge(coverage.score(here[usable], here[usable] + shift))
        ratios[number, inside] = found
    path = _viterbi(ratios, _transitions(len(shifts), judge.share))
    return _without_conflicts([shifts[state] if state < len(shifts) else None for state in path], rows, ratios, shifts)


def _transitions(shifts: int, share: float) -> Numbers:
    """Return the log-probabilities of changing from one state to another; the last state is no target."""
    size = shifts + 1
    found = np.full((size, size), np.log(SHIFT_SHARE / shifts))
    share = min(share, 0.5)
    found[:, -1] = np.log(share / CAUTION)
    found[1:shifts, 0] = np.log(END_SHARE)
    found[np.arange(1, shifts), np.arange(1, shifts)] = np.log(1 - END_SHARE)
    found[-1, 0] = found[0, 0] = np.log(1 - share)
    return found


def _viterbi(ratios: Numbers, transitions: Numbers) -> list[int]:
    """Return the likeliest states; the range begins in its place."""
    score = ratios[:, 0] + transitions[0]
    back = []
    for column in ratios.T[1:]:
        paths = score[:, None] + transitions
        best = paths.argmax(axis=0)
        back.append(best)
        score = paths[best, np.arange(len(best))] + column
    states = [int(score.argmax())]
    for best in reversed(back):
        states.append(int(best[states[-1]]))
    return states[::-1]


def _without_conflicts(states: list[int | None], rows: Rows, ratios: Numbers, shifts: list[int]) -> list[int | None]:
    """Leave each target to the row that it fits best; those of rows outside are theirs."""
    owner: dict[int, int] = {}
    first, last = int(rows[0]), int(rows[-1])
    for at, state in enumerate(states):
        if state is None:
            continue
        target, ratio = int(rows[at]) + state, ratios[shifts.index(state), at]
        if not first <= target <= last:
            states[at] = None
            continue
        before = owner.get(target)
        if before is not None:
            other = states[before]
            assert other is not None
            if ratios[shifts.index(other), before] >= ratio:
                states[at] = None
                continue
            states[before] = None
        owner[target] = at
    return states
