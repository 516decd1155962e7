"""Which pairs stand in the corpora already, stand in other splits too, or go to validation: found by their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from transduce.data import audit
from transduce.data.audit import HELD_OUT, MARKS, Spool


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


def hold_out(train: Spool, dropped: int, share: float, most: int) -> None:
    """Mark the pairs of some sources for validation: those with the smallest hashes of all that are not dropped."""
    usable = train.count(lambda marks: marks & dropped == 0)
    wanted = min(most, max(1, round(share * usable)))
    smallest = np.zeros(0, dtype=np.uint64)
    for _, chunk, marks in train.marked("source"):
        usable_hashes = chunk[marks & dropped == 0]
        smallest = np.sort(np.concatenate([smallest, usable_hashes]))[: wanted + 1]  # a place for each pair
    whole = smallest[smallest < smallest[-1]] if len(smallest) > wanted else smallest[:0]
    last = whole[-1] if len(whole) else smallest[:1].max(initial=0)
    if not len(whole):  # the first source alone has more pairs than wanted: it goes if the larger part stays
        pairs = sum(int(np.count_nonzero(chunk <= last)) for _, chunk in train.hashes("source"))
        if 2 * pairs > usable:
            return
    for start, chunk in train.hashes("source"):
        train.add_mark(start + np.flatnonzero(chunk <= last), HELD_OUT)
