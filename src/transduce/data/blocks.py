"""Plain text as rows: one long stream of tokens, cut into blocks when they are read.

A corpus on disk is a stream of tokens, an end token before every document. It is treated as a ring: the end token of
the first document follows the last one. So every token, end tokens included, is predicted exactly once in an epoch,
wherever the first block begins; that place differs between epochs, so that the text is cut at other places. All blocks
of a corpus have the same length, except the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from transduce.data.ragged import Array, FileArray
from transduce.rng import Rows, round_keys
from transduce.text.rows import take_rows


class Blocks:
    """The blocks of one or several corpora in one array, one after the other."""

    def __init__(
        self,
        values: Array | FileArray,
        sizes: Sequence[int],
        block: int,
        beyond: int,
        shifts: Sequence[int] | None = None,
    ) -> None:
        """`sizes` are the tokens of each corpus; a row has the tokens of a block and `beyond` more (a language model
        predicts the token after each); `shifts` are the places in each corpus where its first block begins."""
        assert sum(sizes) == len(values)
        self._values, self._sizes, self.block, self._beyond = values, [*sizes], block, beyond
        self._shifts = np.array([0] * len(sizes) if shifts is None else shifts, dtype=np.int64)
        self.counts = [-(-size // block) for size in sizes]
        """Blocks of each corpus."""
        self._first_rows = np.cumsum([0, *self.counts], dtype=np.int64)
        self._starts = np.cumsum([0, *sizes], dtype=np.int64)
        self.lengths = BlockLengths(self)

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def shifted(self, seed: int, epoch: int) -> Blocks:
        """Return the blocks of an epoch, shifted; those of the first epoch begin where the corpora do."""
        if epoch == 0:
            return self
        shifts = [
            int(round_keys(seed, "block", epoch, number)[0] % np.uint64(max(1, size)))
            for number, size in enumerate(self._sizes)
        ]
        return Blocks(self._values, self._sizes, self.block, self._beyond, shifts)

    def tokens_in(self, rows: Rows) -> NDArray[np.int64]:
        """How many tokens of its corpus each of these blocks has, without those beyond it."""
        corpus, place = self._places(rows)
        size = np.array(self._sizes, dtype=np.int64)[corpus]
        left: NDArray[np.int64] = np.minimum(self.block, size - place * self.block)
        return left

    def take(self, rows: Rows) -> tuple[Array, NDArray[np.int64]]:
        """Return some rows one after the other in one array, and their lengths."""
        corpus, place = self._places(rows)
        size, first = np.array(self._sizes, dtype=np.int64)[corpus], self._starts[corpus]
        lengths = self.tokens_in(rows) + self._beyond
        start = (self._shifts[corpus] + place * self.block) % np.maximum(size, 1)
        end = np.minimum(start + lengths, size)
        around = start + lengths - end  # what wraps around to the corpus's beginning
        starts = np.stack([first + start, first], axis=1).reshape(-1)
        ends = np.stack([first + end, first + around], axis=1).reshape(-1)
        if isinstance(self._values, FileArray):
            return self._values.rows(starts, ends), lengths
        return take_rows(self._values, starts, ends)[0], lengths

    def __getitem__(self, row: int) -> Array:
        return self.take(np.array([row], dtype=np.int64))[0]

    def rows_of(self, rows: Rows) -> list[Array]:
        """Return some rows, each by itself."""
        tokens, lengths = self.take(rows)
        return [tokens[start:end] for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]

    def _places(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which corpus each row is of, and which of its blocks."""
        corpus = np.searchsorted(self._first_rows[1:], rows, side="right")
        return corpus, rows - self._first_rows[corpus]


class BlockLengths:
    """The lengths of rows, counted as those of targets: where a model predicts the token after each, the first and the
    last take the places of start and end, and do not count."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, rows: Array | slice) -> NDArray[np.int64]:
        """Return the lengths of these rows."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            assert step == 1
            rows = np.arange(start, max(start, stop), dtype=np.int64)
        return self._blocks.tokens_in(rows) - self._blocks._beyond
