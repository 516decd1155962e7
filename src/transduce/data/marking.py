"""Which pairs stand in the corpora already, stand in other splits too, or go to validation: found by their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from transduce.data import audit
from transduce.data.audit import HELD_OUT, MARKS, Hashes, Spool


def mark_duplicates(corpora: Spool, weights: Sequence[float]) -> None:
    """Mark every pair that stands in the corpora already.

    One of equal pairs stays: that of the corpus with the highest weight, since whoever gives one means its pairs to be
    seen so often; among equals the first.
    """
    num_parts = 1
    while corpora.size > num_parts * audit.PART_ROWS:
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


def mark_leaks(train: Spool, others: Iterable[Spool]) -> None:
    """Mark training pairs that stand in other splits, whole or with their source."""
    kept = list(others)
    for kind, mark in (("pair", MARKS["leaked_pair"]), ("source", MARKS["leaked_source"])):
        chunks: list[Any] = [chunk for other in kept for _, chunk in other.hashes(kind)]
        if not chunks:
            continue
        known = np.unique(np.concatenate(chunks))
        for start, chunk, marks in train.marked(kind):
            place = np.minimum(np.searchsorted(known, chunk), len(known) - 1)
            leaked = known[place] == chunk
            if kind == "source":  # a pair that leaked whole is counted as that
                leaked &= marks & MARKS["leaked_pair"] == 0
            train.add_mark(start + np.flatnonzero(leaked), mark)


TRIES = 16
"""Sources with more pairs than are wanted that are passed over, before one is taken all the same."""


def hold_out(train: Spool, dropped: int, share: float, most: int) -> None:
    """Mark the pairs of some sources for validation: those with the smallest hashes of all that are not dropped.

    All pairs of a source go together. One that has more than are wanted is passed over; where all have, the first goes
    if the larger part stays.
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


def _smallest(train: Spool, dropped: int, wanted: int, above: np.uint64 | None = None) -> Hashes:
    """Return the smallest hashes of usable sources (above one of them), one for each pair, and one more than wanted."""
    smallest = np.zeros(0, dtype=np.uint64)
    for _, chunk, marks in train.marked("source"):
        mine = chunk[marks & dropped == 0]
        mine = mine if above is None else mine[mine > above]
        smallest = np.sort(np.concatenate([smallest, mine]))[: wanted + 1]
    return smallest
