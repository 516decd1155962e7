"""Rows for a reader as tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.store import PairStore
from transduce.rng import Rows
from transduce.tasks.text_encoding.config import Objective
from transduce.text.tokenizer.special import Specials

NOTHING = -1
"""Where nothing is wanted."""


@dataclass(frozen=True)
class ReadingBatch:
    """Some framed texts, padded on the right, and what is wanted of them."""

    tokens: Tensor
    """(B N): start, tokens, end."""
    allowed: Tensor
    """(B N), True where there is a real token."""
    segments: Tensor
    """(B N): which of its texts each token is of."""
    wanted: Tensor
    """The label of each text (B 1), the first and last token of its answer (B 2), or what is wanted of each token
    (B N): its label, or the piece that stood there; -1 for nothing. The first token's is whether the second text
    follows, for mask."""
    num_target_tokens: int
    """Answers that are wanted: labels, places, or hidden pieces; of the whole batch, also in a part of it."""
    num_rows: int
    """Rows of the whole batch."""
    rows: Rows
    """Which rows of the split these are."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def width(self) -> int:
        """Tokens of its longest row."""
        return self.tokens.shape[1]

    def part(self, start: int, stop: int) -> ReadingBatch:
        """Return some of the rows."""
        some = slice(start, stop)
        return replace(
            self,
            tokens=self.tokens[some],
            allowed=self.allowed[some],
            segments=self.segments[some],
            wanted=self.wanted[some],
            rows=self.rows[some],
        )

    def to(self, device: torch.device | str) -> ReadingBatch:
        """Return the batch on another device."""
        return replace(
            self,
            tokens=self.tokens.to(device),
            allowed=self.allowed.to(device),
            segments=self.segments.to(device),
            wanted=self.wanted.to(device),
        )


def collate_reading(store: PairStore, rows: Rows, special: Specials, task: Objective) -> ReadingBatch:
    """Put rows together."""
    tokens, lengths = store.sources.take(rows)
    tokens_BN = _filled(tokens, lengths, special.pad, shift=1, width=int(lengths.max(initial=0)) + 2)
    tokens_BN[:, 0] = special.start
    tokens_BN[np.arange(len(rows)), lengths + 1] = special.end
    allowed_BN = np.arange(tokens_BN.shape[1]) < (lengths + 2)[:, None]
    ended_BN = np.cumsum(tokens_BN == special.end, axis=1) - (tokens_BN == special.end)
    segments_BN = np.where(allowed_BN, ended_BN, 0)
    wanted, counts = store.targets.take(rows)
    if task in ("classify", "answer"):
        wanted_BN = wanted.astype(np.int64).reshape(len(rows), -1)
        asked = len(rows) if task == "classify" else 2 * len(rows)
    else:
        wanted_BN = _filled(wanted, counts, 0, shift=0, width=tokens_BN.shape[1]) - 1
        asked = int((wanted_BN[:, 1:] != NOTHING).sum())
    return ReadingBatch(
        torch.from_numpy(tokens_BN),
        torch.from_numpy(allowed_BN),
        torch.from_numpy(segments_BN),
        torch.from_numpy(wanted_BN),
        num_target_tokens=max(1, asked),
        num_rows=len(rows),
        rows=rows,
    )


def _filled(
    values: NDArray[np.int64], lengths: NDArray[np.int64], fill: int, shift: int, width: int
) -> NDArray[np.int64]:
    """Write rows of values into a rectangle, `shift` columns from its left."""
    place = np.arange(width)
    table = np.full((len(lengths), width), fill, dtype=np.int64)
    table[(place >= shift) & (place < shift + lengths[:, None])] = values
    return table
