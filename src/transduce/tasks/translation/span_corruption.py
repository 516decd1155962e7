"""Span corruption: T5's denoising objective (Raffel et al. 2020, section 3.1.4).

Of a block of tokens 15 % are masked, in spans of three on average. Each span is replaced by one *sentinel*, and the
target is every sentinel followed by its span, and a final sentinel:

    source  Thank you <0> me to your party <1> week
    target  <0> for inviting <1> last <2>

Differs from the paper: the spans are a function of (seed, epoch, place), so that a resumed run has the same; the end
tokens of documents are left out of both sides, since one in a target would end it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transduce.data.store import Blocks
from transduce.errors import SettingsError
from transduce.rng import Rows, generator

MASK_FRACTION, MEAN_SPAN = 0.15, 3.0
"""Fraction of tokens that are masked, and mean length of a span."""

Tokens = NDArray[np.int64]


def count_spans(length: int) -> tuple[int, int]:
    """How many of `length` tokens are masked, and in how many spans; at least one is masked and one is kept."""
    masked = min(max(round(length * MASK_FRACTION), 1), length - 1)
    spans = min(max(round(masked / MEAN_SPAN), 1), length - masked)
    return masked, spans


def longest_corrupted(block: int) -> tuple[int, int]:
    """Tokens of the longest source and target that are made of a block."""
    masked, spans = count_spans(block)
    return block - masked + spans, masked + spans + 1


def largest_corrupted(limit: int) -> int:
    """Tokens of the largest block whose source and target, with the end or start token of each, are within a limit; 0
    for none. It is larger than the limit, because spans become single sentinels."""
    blocks = range(2, 2 * limit)
    fitting = bisect_left(blocks, limit, key=lambda block: max(longest_corrupted(block)))
    return blocks[fitting - 1] if fitting else 0


def random_spans(length: int, draw: np.random.Generator) -> NDArray[np.bool_]:
    """Return which tokens are masked. The first never is: kept and masked spans alternate, starting with a kept one."""
    masked, spans = count_spans(length)
    lengths = np.empty(2 * spans, dtype=np.int64)
    lengths[0::2] = _partition(length - masked, spans, draw)
    lengths[1::2] = _partition(masked, spans, draw)
    return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def _partition(total: int, parts: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """Divide a number into `parts` of at least one, all partitions being equally likely."""
    cuts = np.sort(draw.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupted(tokens: Tokens, sentinels: Sequence[int], draw: np.random.Generator) -> tuple[list[int], list[int]]:
    """Return source and target of some tokens."""
    masked = random_spans(len(tokens), draw)
    begins = masked & ~np.concatenate([[False], masked[:-1]])
    source: list[int] = []
    target: list[int] = []
    names = iter(sentinels)
    for token, is_masked, begins_span in zip(tokens.tolist(), masked.tolist(), begins.tolist(), strict=True):
        if begins_span:
            name = next(names)
            source.append(name)
            target.append(name)
        (target if is_masked else source).append(token)
    return source, [*target, next(names)]


class Corruption:
    """Makes pairs of the blocks of a split."""

    def __init__(self, sentinels: Sequence[int], end: int, block: int, seed: int) -> None:
        self._sentinels, self._end, self._seed = sentinels, end, seed
        needed = count_spans(block)[1] + 1
        if needed > len(sentinels):
            raise SettingsError(
                f"data.objective: blocks of {block} tokens need {needed} sentinels, and the tokenizer has "
                f"{len(sentinels)}; set tokenizer.sentinels={needed}, or a smaller data.block_size"
            )

    def pairs(
        self, blocks: Blocks, rows: Rows, epoch: int | str, first: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return sources and targets of some blocks, the first of which is at place `first` of the epoch."""
        sources, targets = [], []
        for place, row in enumerate(blocks.rows_of(rows), start=first):
            tokens = row[row != self._end].astype(np.int64)
            if len(tokens) > 1:
                source, target = corrupted(tokens, self._sentinels, self._draw(epoch, place))
            else:  # the rest of a corpus, too short to mask anything
                source, target = tokens.tolist(), [self._sentinels[0]]
            sources.append(source)
            targets.append(target)
        return sources, targets

    def _draw(self, epoch: int | str, place: int) -> np.random.Generator:
        return generator("spans", self._seed, epoch, place)
