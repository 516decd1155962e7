"""New pairs made of parts of others, cut where the alignment says which part of a target belongs to which of a source.

A pair can be cut between two links if no other one crosses the cut and at most two tokens without a link are between
them, on either side. Pairs with the same tokens there, the linked ones included, can continue as each other: `pardon`
and `cordage` give `pardage`, with its sounds. So whatever is next to each other in a new pair is so in the corpus.

To exchange fragments that occur in the same context is the idea of GECA (Andreas 2020); the new stems of Anastasopoulos
and Neubig (2019), for inflection, are drawn at random instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.store import PairStore
from transduce.rng import Rows, mix, mix_arrays, splitmix64

WIDEST = 3
"""Tokens from a linked one before a cut to the linked one after it, at most."""
Integers = NDArray[np.int64]


class Place(NamedTuple):
    """A place in a pair, between tokens."""

    row: int
    source: int
    """Source tokens before it."""
    target: int
    """Target tokens before it."""


class Cuts:
    """Where the pairs of a corpus can be cut, in the order of the rows, and which cuts are alike.

    A cut that is like no other is left out. All are in memory: some 60 bytes for each.
    """

    def __init__(self, store: PairStore, tags: tuple[int, int]) -> None:
        row, source, target = _all_cuts(store)
        contexts = _contexts(store, row, (source, target), tags)
        _, kind, count = np.unique(contexts, return_inverse=True, return_counts=True)
        shared = count[kind] > 1
        self._row, kind = row[shared], kind[shared]
        self._source, self._target = source[0, shared] + 1, target[0, shared] + 1
        self._first = np.searchsorted(self._row, np.arange(len(store) + 1))
        self._by_kind = np.argsort(kind, kind="stable")
        self._begin = np.searchsorted(kind[self._by_kind], kind, side="left")
        self._count = np.searchsorted(kind[self._by_kind], kind, side="right") - self._begin

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, cut: int) -> Place:
        return Place(int(self._row[cut]), int(self._source[cut]), int(self._target[cut]))

    def of_row(self, row: int) -> tuple[int, int]:
        """Return the first cut of a row, and the first one after its last."""
        return int(self._first[row]), int(self._first[row + 1])

    def alike(self, cut: int, draw: int) -> int:
        """Return one of the cuts that are like this one, perhaps itself."""
        return int(self._by_kind[int(self._begin[cut]) + draw % int(self._count[cut])])


def _all_cuts(store: PairStore) -> tuple[Integers, Integers, Integers]:
    """Return the row of each cut, and the source and target tokens that are linked before and after it (2 × cuts)."""
    assert store.alignments is not None, "checked when the run was set up"
    values, lengths = store.alignments.take(np.arange(len(store)))
    target, source = values.astype(np.int64).reshape(-1, 2).T
    row = np.repeat(np.arange(len(store)), lengths // 2)
    order = np.lexsort((target, source, row))
    row, source, target = row[order], source[order], target[order]
    shift = row * (int(target.max(initial=0)) + 1)  # targets of later rows are higher: one pass does for all rows
    highest = np.maximum.accumulate(target + shift) - shift
    lowest = np.minimum.accumulate((target + shift)[::-1])[::-1] - shift
    near = (np.diff(row) == 0) & (np.diff(source) <= WIDEST) & (np.diff(target) <= WIDEST)
    apart = (highest[:-1] == target[:-1]) & (lowest[1:] == target[1:]) & (np.diff(source) > 0) & (np.diff(target) > 0)
    before = np.flatnonzero(near & apart)
    around = np.stack([before, before + 1])
    return row[before], source[around], target[around]


def _contexts(
    store: PairStore, row: Integers, linked: tuple[Integers, Integers], tags: tuple[int, int]
) -> NDArray[np.uint64]:
    """Return a number for the tokens from the last linked ones before each cut to the first ones after it, and the tag
    of its language."""
    found = []
    for side, (before, after), tag in zip(store.pairs, linked, tags, strict=True):
        values, lengths = side.take(np.arange(len(store)))
        first = (np.cumsum(lengths) - lengths)[row]
        places = [first + np.minimum(before + step, after) for step in range(WIDEST + 1)]
        found += [values[at].astype(np.uint64) for at in (*places, *(first + number for number in range(tag)))]
        found.append((after - before).astype(np.uint64))
    return mix_arrays(*found)


class Recombination:
    """Makes the pairs of each epoch: at every cut a pair continues, with a probability, as another one.

    What is drawn is a function of (seed, epoch, place in the epoch).
    """

    def __init__(self, store: PairStore, probability: float, seed: int, tags: tuple[int, int] = (0, 0)) -> None:
        """`tags`: first source and target tokens that name languages, which pairs that are joined share."""
        self._store, self._cuts, self._seed = store, Cuts(store, tags), seed
        self._threshold = int(probability * 2**64)
        rows = np.arange(len(store))
        self._longest = int(store.source_lengths[rows].max()), int(store.target_lengths[rows].max())

    def __call__(self, rows: Rows, epoch: int, start: int) -> PairStore:
        """Return the pairs of a pool, whose first one is at the place `start` of the epoch."""
        made = [self._pair(row, mix(self._seed, epoch, start + place)) for place, row in enumerate(rows.tolist())]
        sources, targets, links = ([pair[side] for pair in made] for side in range(3))
        return PairStore.of(sources, targets, links)

    def _pair(self, row: int, draw: int) -> tuple[list[int], list[int], list[int]]:
        """Return source, target and links of a new pair, or those of the row where the new pair would be the longest of
        the corpus."""
        made, here = _Pair(self._store), Place(row, 0, 0)
        cut, end = self._cuts.of_row(row)
        while cut < end and made.fits(self._longest):
            draw = splitmix64(draw)
            if draw < self._threshold:
                made.append(here, self._cuts[cut])
                draw = splitmix64(draw)
                cut = self._cuts.alike(cut, draw)
                here = self._cuts[cut]
                end = self._cuts.of_row(here.row)[1]
            cut += 1
        made.append(here)
        if not made.fits(self._longest):
            made = _Pair(self._store)
            made.append(Place(row, 0, 0))
        return made.source, made.target, made.links


class _Pair:
    """A pair that grows by parts of others."""

    def __init__(self, store: PairStore) -> None:
        self._store = store
        self.source: list[int] = []
        self.target: list[int] = []
        self.links: list[int] = []

    def fits(self, longest: tuple[int, int]) -> bool:
        return len(self.source) <= longest[0] and len(self.target) <= longest[1]

    def append(self, start: Place, end: Place | None = None) -> None:
        """Append a part of one row, or all the rest of it, with its links: no link crosses a cut."""
        assert self._store.alignments is not None
        row, first_source, first_target = start
        source = self._store.sources[row].tolist()[first_source : None if end is None else end.source]
        target = self._store.targets[row].tolist()[first_target : None if end is None else end.target]
        links = self._store.alignments[row].astype(np.int64).reshape(-1, 2)
        inside = (links[:, 1] >= first_source) & (links[:, 1] < first_source + len(source))
        shift = (len(self.target) - first_target, len(self.source) - first_source)
        self.links += (links[inside] + shift).reshape(-1).tolist()
        self.source += source
        self.target += target
