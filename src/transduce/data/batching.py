"""Rows of similar length as batches within a budget of tokens, and batches as tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.ragged import Ragged
from transduce.data.store import Blocks, BlockStore, PairStore, Split
from transduce.rng import Rows
from transduce.text.tokenizer.special import Specials


def _bands(top: int = 2**40) -> NDArray[np.int64]:
    starts = [1]
    while starts[-1] < top:
        starts.append(starts[-1] + max(1, starts[-1] // 10))
    return np.array(starts, dtype=np.int64)


_BANDS = _bands()
"""Where each band of target lengths starts."""


def cut_by_budget(
    rows: Rows,
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    tokens: int,
    max_rows: int | None = None,
) -> list[Rows]:
    """Sort rows by target, then source length, and cut them so that rows × longest fits the budget on both sides.

    Target lengths are compared in bands a tenth wide (single lengths below 20), so that there are enough rows in one
    to sort by source too; from band to band source lengths run up and down in turns, so that a batch across two
    bands still holds similar sources. Ties stay as given. A row above the budget is a batch of its own.
    """
    source, target = source_lengths + 1, target_lengths + 1  # the end token
    band = np.searchsorted(_BANDS, target, side="right")
    order = np.lexsort((np.where(band % 2 == 0, source, -source), band))
    rows, source, target, shortest = rows[order], source[order], target[order], _BANDS[band[order] - 1]
    batches = []
    start = 0
    while start < len(rows):
        most = max(1, tokens // int(shortest[start]))
        reach = slice(start, start + (most if max_rows is None else min(most, max_rows)))
        longest = np.maximum.accumulate(np.maximum(source[reach], target[reach]))
        fits = longest * np.arange(1, len(longest) + 1) <= tokens
        count = max(1, int(np.count_nonzero(fits)))  # rows × longest only grows: the first rows fit
        batches.append(rows[start : start + count])
        start += count
    return batches


def validation_batches(store: Split, tokens: int) -> list[Rows]:
    """Return every row of a split exactly once, in batches of similar length, always the same batches."""
    rows = np.arange(len(store), dtype=np.int64)
    return cut_by_budget(rows, store.source_lengths[:], store.target_lengths[:], tokens)


def places(mask: Tensor, count: int) -> Tensor:
    """Return where a mask is true, as `nonzero` does, given how often: so nobody has to wait.  (B N) -> (C)."""
    return mask.flatten().to(torch.uint8).argsort(descending=True, stable=True)[:count]


class Picker:
    """Picks the values where a mask is true, in the order of the rows."""

    def __init__(self, mask: Tensor, count: int | None) -> None:
        """On a GPU the shape of what is picked must be known, so `count` is given.  (B N)."""
        self._mask, self._place_C = mask, None
        if count is not None and mask.device.type != "cpu":
            self._place_C = places(mask, count)

    def __call__(self, values: Tensor) -> Tensor:
        """(B N …) -> (C …)."""
        if self._place_C is None:
            return values[self._mask]
        return values.flatten(0, 1).index_select(0, self._place_C)


@dataclass(frozen=True, kw_only=True)
class Batch(ABC):
    """Some rows of a split as tensors, padded on the right; the first axis of every tensor is the row."""

    rows: Rows
    """Which rows of the split these are."""
    num_target_tokens: int
    """Target tokens that the loss is summed over; a part of a batch keeps the sum of the whole."""
    num_picked: NDArray[np.int64] | None = None
    """(B), how many vectors of each row the loss picks. On a GPU it cannot be asked without waiting."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    @abstractmethod
    def width(self) -> int:
        """Tokens of its longest row, on its longest side."""

    def part(self, start: int, stop: int) -> Self:
        """Return some of the rows."""
        picked = None if self.num_picked is None else self.num_picked[start:stop]
        return self._map(lambda tensor: tensor[start:stop], rows=self.rows[start:stop], num_picked=picked)

    def picker(self, mask: Tensor) -> Picker:
        """Return what picks the values where a mask is true, as many as `num_picked` states.  (B N)."""
        return Picker(mask, None if self.num_picked is None else int(self.num_picked.sum()))

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on another device; from pinned memory without waiting for the copy."""
        onwards = torch.device(device).type == "cuda"
        return self._map(lambda tensor: tensor.to(device, non_blocking=onwards))

    def pinned(self) -> Self:
        """Return the batch in pinned memory, from which a CUDA GPU copies by itself."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor], **others: Any) -> Self:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors: Any = {name: change(value) for name, value in found.items() if isinstance(value, Tensor)}
        return replace(self, **tensors, **others)


@dataclass(frozen=True, kw_only=True)
class PairBatch(Batch):
    """Pairs of source and target, or blocks of plain text with an empty source."""

    source: Tensor
    """(B S): tokens, end."""
    source_allowed: Tensor
    """(B S), True where there is a real token."""
    target: Tensor
    """(B T+1): start, tokens, end, or a block of plain text as it is; the decoder reads [:, :-1] and predicts
    [:, 1:]."""
    target_lengths: Tensor
    """(B), tokens that the model predicts in each row: real ones with the end, without the start."""
    guide: Tensor | None = None
    """(B T S), for guided alignment: the weight of each predicted token, spread evenly over the source tokens that it
    is aligned with; 0 elsewhere."""

    @property
    def is_predicted(self) -> Tensor:
        """Which tokens after the first the model predicts; the others are padding.  -> (B T)."""
        place_T = torch.arange(self.target.shape[1] - 1, device=self.target.device)
        return place_T < self.target_lengths[:, None]

    @property
    def width(self) -> int:
        return max(self.source.shape[1], self.target.shape[1] - 1)


def collate(store: PairStore | BlockStore, rows: Rows, source: Specials, target: Specials) -> PairBatch:
    """Return the pairs or blocks of these rows as tensors."""
    source_BS, source_lengths = _padded(store.sources, rows, source, start=False)
    if isinstance(store.targets, Blocks):
        target_BT, target_lengths = _in_a_row(store.targets, rows, target)
    else:
        target_BT, target_lengths = _padded(store.targets, rows, target, start=True)
    allowed_BS = np.arange(source_BS.shape[1]) <= source_lengths[:, None]  # the end token too
    return PairBatch(
        source=torch.from_numpy(source_BS),
        source_allowed=torch.from_numpy(allowed_BS),
        target=torch.from_numpy(target_BT),
        target_lengths=torch.from_numpy(target_lengths + 1),
        num_target_tokens=int(target_lengths.sum()) + len(rows),
        num_picked=target_lengths + 1,
        rows=rows,
    )


def with_guide(batch: PairBatch, alignments: Ragged, weight: float) -> PairBatch:
    """Return the batch with its alignments, by which attention is guided with this weight."""
    links, lengths = alignments.take(batch.rows)
    target, source = links.astype(np.int64).reshape(-1, 2).T
    row = np.repeat(np.arange(len(batch)), lengths // 2)
    guide_BTS = np.zeros((len(batch), batch.target.shape[1] - 1, batch.source.shape[1]), dtype=np.float32)
    guide_BTS[row, target, source] = weight
    guide_BTS /= np.maximum(1, np.count_nonzero(guide_BTS, axis=-1, keepdims=True))
    return replace(batch, guide=torch.from_numpy(guide_BTS))


def _in_a_row(blocks: Blocks, rows: Rows, special: Specials) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pad blocks; the lengths are without the first token and the last, which are in the places of start and end."""
    tokens, lengths = blocks.take(rows)
    tokens_BT = np.full((len(rows), int(lengths.max(initial=0))), special.pad, dtype=np.int64)
    tokens_BT[np.arange(tokens_BT.shape[1]) < lengths[:, None]] = tokens
    return tokens_BT, lengths - 2


def _padded(side: Ragged, rows: Rows, special: Specials, start: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    tokens, lengths = side.take(rows)
    first = int(start)
    tokens_BT = np.full((len(rows), first + int(lengths.max(initial=0)) + 1), special.pad, dtype=np.int64)
    if start:
        tokens_BT[:, 0] = special.start
    place_T = np.arange(tokens_BT.shape[1])
    tokens_BT[(place_T >= first) & (place_T < first + lengths[:, None])] = tokens
    tokens_BT[np.arange(len(rows)), first + lengths] = special.end
    return tokens_BT, lengths
