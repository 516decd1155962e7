"""Batches of a text encoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batching import Batch
from transduce.data.store import ExampleStore
from transduce.rng import Rows
from transduce.tasks.text_encoding.config import Objective
from transduce.text.tokenizer.special import Specials

NO_LABEL = -1
"""Label of tokens without one."""


@dataclass(frozen=True, kw_only=True)
class EncoderBatch(Batch):
    """Texts with their special tokens, and their labels."""

    tokens: Tensor
    """(B N): start, tokens, end."""
    allowed: Tensor
    """(B N), True where there is a real token."""
    segments: Tensor
    """(B N): which of its texts each token belongs to."""
    labels: Tensor
    """The label of each text (B 1), the first and last token of its answer (B 2), or the label of each token (B N), for
    mask the original token; -1 for none. For mask the first one is whether the second text follows the first."""
    num_rows: int
    """Rows of the whole batch, also in a part of it."""

    @property
    def width(self) -> int:
        return self.tokens.shape[1]


def collate_examples(store: ExampleStore, rows: Rows, special: Specials, objective: Objective) -> EncoderBatch:
    """Return rows of a split as tensors."""
    tokens, lengths = store.tokens.take(rows)
    tokens_BN = _filled(tokens, lengths, special.pad, shift=1, width=int(lengths.max(initial=0)) + 2)
    tokens_BN[:, 0] = special.start
    tokens_BN[np.arange(len(rows)), lengths + 1] = special.end
    allowed_BN = np.arange(tokens_BN.shape[1]) < (lengths + 2)[:, None]
    ended_BN = np.cumsum(tokens_BN == special.end, axis=1) - (tokens_BN == special.end)
    segments_BN = np.where(allowed_BN, ended_BN, 0)
    labels, counts = store.targets.take(rows)
    if objective in ("classify", "answer"):
        label_BN = labels.astype(np.int64).reshape(len(rows), -1)
        count = len(rows) if objective == "classify" else 2 * len(rows)
    else:
        label_BN = _filled(labels, counts, 0, shift=0, width=tokens_BN.shape[1]) - 1
        count = int((label_BN[:, 1:] != NO_LABEL).sum())
    return EncoderBatch(
        tokens=torch.from_numpy(tokens_BN),
        allowed=torch.from_numpy(allowed_BN),
        segments=torch.from_numpy(segments_BN),
        labels=torch.from_numpy(label_BN),
        num_target_tokens=max(1, count),
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
