"""The training batches of a run as tensors, from any position on.

In some runs the tokens differ between epochs: BPE-dropout tokenises each line anew, span corruption and masking draw
new spans. The task then passes `rewrite`, which makes the rows of one pool; the pool is split into batches by their new
lengths. A rewritten row is a function of (seed, epoch, place), so a resumed run makes the same pool again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from transduce.data.batching import Batch
from transduce.data.order import BUCKET_SIZE, BatchSampler, Position
from transduce.data.store import Split
from transduce.rng import Rows
from transduce.training.config import TrainingConfig

Rewrite = Callable[[Rows, int, int], Split]
"""(rows of a pool, epoch, place of the pool's first row in the epoch) -> the rows as they are read in this epoch."""


class BatchSource:
    """The batches of one run."""

    def __init__(
        self,
        split: Split,
        collate: Callable[[Split, Rows], Batch],
        config: TrainingConfig,
        device: torch.device,
        rewrite: Rewrite | None = None,
        bucket_size: int = BUCKET_SIZE,
    ) -> None:
        """`collate` makes tensors of rows of a split; `rewrite` makes the rows of a pool anew for each epoch."""
        self.split, self.config, self.device = split, config, device
        self._collate, self._rewrite = collate, rewrite
        self.batches = BatchSampler.of(
            split,
            config.tokens_per_batch,
            config.seed,
            config.bucket_size or bucket_size,
            config.curriculum,
            config.max_batch_size,
        )

    def starting(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        """Yield batches from a position on, each with the position after it."""
        for after, (split, rows) in self.batches.starting(position, self._pool):
            yield after, self._collate(split, rows).to(self.device)

    def _pool(self, epoch: int, pool: int) -> list[tuple[Split, Rows]]:
        if self._rewrite is None:
            split = self.split.of_epoch(self.config.seed, epoch)
            return [(split, rows) for rows in self.batches.bucket(epoch, pool)]
        start, rows = self.batches.rows(epoch, pool)
        split = self._rewrite(rows, epoch, start)
        return self.batches.shuffled([(split, batch) for batch in self.batches.cut(split)], epoch, pool)
