"""What a reader's training reads: rows as they were prepared, or with pieces hidden anew in every epoch."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from transduce.data.batches import POOL_SIZE, Batches, Position
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.rng import Rows
from transduce.tasks.text_encoding.batches import ReadingBatch, collate_reading
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.tasks.text_encoding.masking import Masking
from transduce.training.config import TrainingConfig

MASKED_POOL_SIZE = 8_192
"""Rows that are masked together: less than a second's work."""


class ReadingFeed:
    """The batches of a run of a reader."""

    def __init__(self, prepared: Prepared, config: TrainingConfig, device: torch.device) -> None:
        assert isinstance(prepared.data, TextEncodingConfig)
        self.prepared, self.config, self.device, self.data = prepared, config, device, prepared.data
        self._masking = None
        if self.data.objective == "mask":
            self._masking = Masking(self.data, prepared.source_tokenizer, config.seed)
        pool_size = config.bucket_size or (MASKED_POOL_SIZE if self._masking else POOL_SIZE)
        self.batches = Batches.of(
            prepared.train, config.tokens_per_batch, config.seed, pool_size, config.curriculum, config.max_batch_size
        )

    def starting(self, position: Position) -> Iterator[tuple[Position, ReadingBatch]]:
        """Yield batches from a position on, each with the position after it."""
        specials = self.prepared.source_tokenizer.specials
        for after, (store, rows) in self.batches.starting(position, self._pool):
            yield after, collate_reading(store, rows, specials, self.data.objective).to(self.device)

    def _pool(self, epoch: int, pool: int) -> list[tuple[PairStore, Rows]]:
        if self._masking is None:
            return [(self.prepared.train, rows) for rows in self.batches.pool(epoch, pool)]
        _, rows = self.batches.rows(epoch, pool)
        store = PairStore.of(*self._masking.examples(self.prepared.train, rows.tolist(), epoch))
        return self.batches.shuffled([(store, batch) for batch in self.batches.cut(store)], epoch, pool)
