"""Which rows make the next batch, from any position of a run on; and a batch as tensors.

The order is a function of (seed, epoch): a keyed permutation of all places of an epoch, which are its rows (or, where
corpora are mixed by weights, stand for them: `mixture`), taken in pools. A pool is sorted by
length and cut into batches by a budget of tokens, so that little is padding, and its batches are shuffled. Nothing
is drawn from a stream, so a run that resumes computes the pool it stopped in and goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.blocks import BlockLengths, Blocks
from transduce.data.mixture import Mixture, Part
from transduce.data.ragged import Lengths, Ragged
from transduce.data.store import BlockStore, PairStore, Split
from transduce.errors import DataError, SettingsError
from transduce.rng import Rows, permute, round_keys
from transduce.text.tokenizer.special import Specials

T = TypeVar("T")

POOL_SIZE = 65_536
"""Rows sorted together: enough for hundreds of full batches, little enough to sort in milliseconds."""
COUNTED_POOLS = 4
"""An epoch of more pools is not counted batch by batch."""


def _bands(top: int = 2**40) -> NDArray[np.int64]:
    starts = [1]
    while starts[-1] < top:
        starts.append(starts[-1] + max(1, starts[-1] // 10))
    return np.array(starts, dtype=np.int64)


_BANDS = _bands()
"""Where each band of target lengths starts."""


class Position(NamedTuple):
    """Where a run stands in its data: the next batch is `batch` of `pool` of `epoch`. As JSON: three numbers."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


START = Position()
"""Where a run begins."""


class Batches:
    """The endless deterministic sequence of batches of one corpus, as row numbers."""

    def __init__(
        self,
        source_lengths: Lengths | NDArray[np.int64],
        target_lengths: Lengths | BlockLengths | NDArray[np.int64],
        tokens: int,
        seed: int,
        pool_size: int = POOL_SIZE,
        parts: Sequence[Part] | None = None,
        curriculum: int = 0,
        max_rows: int | None = None,
    ) -> None:
        """Lengths are without special tokens; `tokens` bounds rows × longest row of each side, end token included.

        `parts` are the corpora that the rows come from, one after the other, to be mixed by their weights. In the first
        `curriculum` epochs only short rows are seen, longer ones in each. `max_rows` bounds the rows of a batch.
        """
        parts = [Part(len(target_lengths))] if parts is None else parts
        assert len(source_lengths) == len(target_lengths) == sum(part.size for part in parts)
        if len(target_lengths) == 0:
            raise DataError("a corpus without pairs has no batches; check what preparing it left out")
        if tokens < 1 or pool_size < 1:
            raise SettingsError(f"batches need at least one token and pools one row, not {tokens} and {pool_size}")
        self._source_lengths = source_lengths
        self._target_lengths = target_lengths
        self._tokens, self._max_rows = tokens, max_rows
        self._seed = seed
        self._mixture = Mixture(parts, seed)
        self._curriculum = None
        if curriculum:
            self._curriculum = Curriculum(source_lengths, target_lengths, curriculum)
        self._size = self._mixture.size
        self.num_pools = -(-self._size // pool_size)
        self._pool_size = -(-self._size // self.num_pools)  # equal pools: a small last one would be mostly padding

    @classmethod
    def of(
        cls,
        store: Split,
        tokens: int,
        seed: int,
        pool_size: int = POOL_SIZE,
        curriculum: int = 0,
        max_rows: int | None = None,
    ) -> Self:
        """The batches of a prepared split."""
        lengths = store.source_lengths, store.target_lengths
        return cls(*lengths, tokens, seed, pool_size, store.parts, curriculum, max_rows)

    def starting(
        self, position: Position = START, make: Callable[[int, int], list[T]] | None = None
    ) -> Iterator[tuple[Position, T]]:
        """Yield the batches from a position on, epoch after epoch, each with the position *after* it.

        The yielded position is what a checkpoint keeps once the batch was used. `make(epoch, pool)` makes the batches
        of a pool where they are something else than rows.
        """
        make = make or cast("Callable[[int, int], list[T]]", self.pool)
        epoch, pool, batch = position
        while True:
            batches = make(epoch, pool)
            for index in range(batch, len(batches)):
                if index + 1 < len(batches):
                    after = Position(epoch, pool, index + 1)
                elif pool + 1 < self.num_pools:
                    after = Position(epoch, pool + 1, 0)
                else:
                    after = Position(epoch + 1, 0, 0)
                yield after, batches[index]
            pool, batch = pool + 1, 0
            if pool >= self.num_pools:
                epoch, pool = epoch + 1, 0

    def epoch(self, number: int) -> Iterator[Rows]:
        """Yield the batches of one epoch: every row exactly once, or as often as its corpus's weight says, but for
        those that come later in a curriculum."""
        for pool in range(self.num_pools):
            yield from self.pool(number, pool)

    @property
    def is_estimated(self) -> bool:
        """Whether `batches_in_epoch` is only about right."""
        return self.num_pools > COUNTED_POOLS

    def batches_in_epoch(self, number: int) -> int:
        """Count the batches of one epoch; epochs differ by a few, as their pools do, and one that a curriculum leaves
        nothing of counts as one.

        A large corpus is not cut into batches just to count them: it is judged by the first pool.
        """
        if self.is_estimated:
            return max(1, len(self._cut(number, 0)) * self.num_pools)
        return max(1, sum(len(self._cut(number, pool)) for pool in range(self.num_pools)))

    def pool(self, epoch: int, pool: int) -> list[Rows]:
        """Return the batches of one pool in the order they are used."""
        return self.shuffled(self._cut(epoch, pool), epoch, pool)

    def shuffled(self, batches: list[T], epoch: int, pool: int) -> list[T]:
        """Return what was made of one pool in the order it is used."""
        if not batches:
            return []
        places = np.arange(len(batches), dtype=np.int64)
        return [batches[place] for place in permute(places, len(batches), round_keys(self._seed, epoch, pool))]

    def rows(self, epoch: int, pool: int) -> tuple[int, Rows]:
        """Return where in the epoch a pool begins, and its rows."""
        start = pool * self._pool_size
        places = np.arange(start, min(start + self._pool_size, self._size), dtype=np.int64)
        rows = self._mixture.rows(permute(places, self._size, round_keys(self._seed, epoch)), epoch)
        return start, rows if self._curriculum is None else self._curriculum.seen(rows, epoch)

    def cut(self, store: Split) -> list[Rows]:
        """Cut what was made of one pool as the pool itself would be."""
        places = np.arange(len(store), dtype=np.int64)
        return cut_by_budget(places, store.source_lengths[:], store.target_lengths[:], self._tokens, self._max_rows)

    def _cut(self, epoch: int, pool: int) -> list[Rows]:
        _, rows = self.rows(epoch, pool)
        lengths = self._source_lengths[rows], self._target_lengths[rows]
        return cut_by_budget(rows, *lengths, self._tokens, self._max_rows)


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
        count = max(1, int(np.count_nonzero(fits)))  # rows × longest only grows, so what fits is a beginning
        batches.append(rows[start : start + count])
        start += count
    return batches


def validation_batches(store: Split, tokens: int) -> list[Rows]:
    """Return every row of a split exactly once, in batches of similar length, always the same."""
    rows = np.arange(len(store), dtype=np.int64)
    return cut_by_budget(rows, store.source_lengths[:], store.target_lengths[:], tokens)


@dataclass(frozen=True, kw_only=True)
class Batch(ABC):
    """Some rows of a split as tensors, padded on the right; the first axis of every tensor is the row."""

    rows: Rows
    """Which rows of the split these are."""
    num_target_tokens: int
    """Target tokens that the loss is summed over; a part of a batch keeps the sum of the whole."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    @abstractmethod
    def width(self) -> int:
        """Tokens of its longest row, on its longest side."""

    def part(self, start: int, stop: int) -> Self:
        """Return some of the rows."""
        return self._map(lambda tensor: tensor[start:stop], rows=self.rows[start:stop])

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on another device."""
        return self._map(lambda tensor: tensor.to(device))

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

    @property
    def target_asked(self) -> Tensor:
        """Which tokens after the first the model predicts; the others are padding.  -> (B T)."""
        place_T = torch.arange(self.target.shape[1] - 1, device=self.target.device)
        return place_T < self.target_lengths[:, None]

    @property
    def width(self) -> int:
        return max(self.source.shape[1], self.target.shape[1] - 1)


def collate(store: PairStore | BlockStore, rows: Rows, source: Specials, target: Specials) -> PairBatch:
    """Put the pairs of these rows together."""
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
        rows=rows,
    )


def _in_a_row(blocks: Blocks, rows: Rows, special: Specials) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pad blocks; the lengths are without the first token and the last, which stand where start and end would."""
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


# Short pairs first: how long a pair may be, epoch by epoch (Kaiser & Sutskever 2016, section 3; Bengio et al. 2009).
#
# What has been seen is a function of the epoch alone, so that a run can stop and go on anywhere.

CHUNK = 2**20
"""Rows that are looked at together, so that memory does not grow with the corpus."""


class RowLengths(Protocol):
    """The lengths of one side of a corpus."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[np.int64]: ...


class Curriculum:
    """The longest pair that may be seen grows evenly, from near the shortest to the longest one."""

    def __init__(self, source_lengths: RowLengths, target_lengths: RowLengths, epochs: int) -> None:
        """A row is as long as its longer side; in the `epochs`-th epoch and from then on all are seen."""
        assert epochs >= 1 and len(target_lengths)
        self._sides, self.epochs = (source_lengths, target_lengths), epochs
        count = len(target_lengths)
        bounds = []
        for start in range(0, count, CHUNK):
            lengths = self.length(np.arange(start, min(start + CHUNK, count)))
            bounds += [int(lengths.min()), int(lengths.max())]
        self.shortest, self.longest = min(bounds), max(bounds)

    def length(self, rows: Rows) -> NDArray[np.int64]:
        """Return how long each row is."""
        source, target = self._sides
        return np.maximum(source[rows], target[rows])

    def limit(self, epoch: int) -> int:
        """Return the longest length of an epoch, counted from 0."""
        reached = min(epoch + 1, self.epochs)
        return self.shortest + (self.longest - self.shortest) * reached // self.epochs

    def seen(self, rows: Rows, epoch: int) -> Rows:
        """Return the rows that are short enough, in their order."""
        return rows[self.length(rows) <= self.limit(epoch)]
