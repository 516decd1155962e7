"""Spans taken out of text, for a model to put back: T5's denoising (Raffel et al. 2020, section 3.1.4).

Of a stretch of tokens 15 % are taken out, in spans of three on average. Each span leaves one *sentinel* behind, and the
target is every sentinel with what it stands for, one after the other, and a last sentinel that says there is no more:

    source  Thank you <0> me to your party <1> week
    target  <0> for inviting <1> last <2>

Differs from the paper: what is taken out is a function of (seed, epoch, place), so that a resumed run takes out the
same; the ends of documents stay out of both sides, since an end token in a target would end it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transduce.data.blocks import Blocks
from transduce.errors import SettingsError
from transduce.rng import Rows, generator

RATE, MEAN_SPAN = 0.15, 3.0
"""Share of tokens that are taken out, and how many stand together on average."""

Tokens = NDArray[np.int64]


def spans_of(length: int) -> tuple[int, int]:
    """How many tokens of so many are taken out, and in how many spans; at least one of each stays and goes."""
    taken = min(max(round(length * RATE), 1), length - 1)
    spans = min(max(round(taken / MEAN_SPAN), 1), length - taken)
    return taken, spans


def longest_corrupted(block: int) -> tuple[int, int]:
    """Tokens of the longest source and target that are made of a block."""
    taken, spans = spans_of(block)
    return block - taken + spans, taken + spans + 1


def largest_corrupted(limit: int) -> int:
    """Tokens of the largest block whose source and target, with the token that frames each, are within a limit; 0 for
    none. It is larger than the limit: what is taken out leaves room."""
    blocks = range(2, 2 * limit)
    fitting = bisect_left(blocks, limit, key=lambda block: max(longest_corrupted(block)))
    return blocks[fitting - 1] if fitting else 0


def random_spans(length: int, draw: np.random.Generator) -> NDArray[np.bool_]:
    """Say which tokens are taken out. The first never is: what stays and what goes take turns, staying first."""
    taken, spans = spans_of(length)
    lengths = np.empty(2 * spans, dtype=np.int64)
    lengths[0::2] = _divided(length - taken, spans, draw)
    lengths[1::2] = _divided(taken, spans, draw)
    return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def _divided(total: int, parts: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """Divide a number into so many parts of at least one, every way being as likely as any other."""
    cuts = np.sort(draw.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupted(tokens: Tokens, sentinels: Sequence[int], draw: np.random.Generator) -> tuple[list[int], list[int]]:
    """Return what is left of some tokens, and what was taken out of them."""
    taken = random_spans(len(tokens), draw)
    begins = taken & ~np.concatenate([[False], taken[:-1]])
    source: list[int] = []
    target: list[int] = []
    names = iter(sentinels)
    for token, gone, new in zip(tokens.tolist(), taken.tolist(), begins.tolist(), strict=True):
        if new:
            name = next(names)
            source.append(name)
            target.append(name)
        (target if gone else source).append(token)
    return source, [*target, next(names)]


class Corruption:
    """Makes pairs of the blocks of a split."""

    def __init__(self, sentinels: Sequence[int], end: int, block: int, seed: int) -> None:
        self._sentinels, self._end, self._seed = sentinels, end, seed
        needed = spans_of(block)[1] + 1
        if needed > len(sentinels):
            raise SettingsError(
                f"data.objective: blocks of {block} tokens need {needed} sentinels, and the tokenizer has "
                f"{len(sentinels)}; set tokenizer.sentinels={needed}, or a smaller data.block_size"
            )

    def pairs(
        self, blocks: Blocks, rows: Rows, epoch: int | str, first: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return sources and targets of some blocks, which stand at `first` and behind it in an epoch."""
        sources, targets = [], []
        for place, row in enumerate(blocks.rows_of(rows), start=first):
            tokens = row[row != self._end].astype(np.int64)
            if len(tokens) > 1:
                source, target = corrupted(tokens, self._sentinels, self._draw(epoch, place))
            else:  # the rest of a corpus, too short to take something out of
                source, target = tokens.tolist(), [self._sentinels[0]]
            sources.append(source)
            targets.append(target)
        return sources, targets

    def _draw(self, epoch: int | str, place: int) -> np.random.Generator:
        return generator("spans", self._seed, epoch, place)
