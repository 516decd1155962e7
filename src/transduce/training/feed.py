"""What training reads: the batches of a corpus as tensors, from any position on.

With BPE-dropout every epoch has tokens of its own. They are made a pool at a time from the text that is kept beside the
tokens, and the pool is cut into batches by their lengths. What comes of a line is a function of (seed, epoch, place),
so a resumed run makes its pool again and goes on. Plain text of which spans are taken out is made into pairs in the
same way.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from transduce.data.batches import POOL_SIZE, Batch, Batches, Position, collate
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.rng import Rows
from transduce.tasks.translation.span_corruption import Corruption
from transduce.text.tokenizer.bpe_dropout import BpeDropout
from transduce.training.config import TrainingConfig

DROPPED_POOL_SIZE = 8_192
"""Rows that are tokenised together: about a second's work, done every half minute."""

CORRUPTED_POOL_TOKENS = 2**20
"""Tokens of the blocks that are made into pairs together."""

Limits = tuple[int | None, int | None]
"""Most tokens that a model reads of the source and of the target, start and end among them; None for no limit."""


class Feed:
    """The batches of a run."""

    def __init__(self, prepared: Prepared, config: TrainingConfig, device: torch.device, limits: Limits) -> None:
        self.prepared, self.config, self.device, self.limits = prepared, config, device, limits
        rate, tokenizers = config.bpe_dropout, (prepared.source_tokenizer, prepared.target_tokenizer)
        self._dropouts = [BpeDropout(tokenizer, rate, config.seed) for tokenizer in tokenizers] if rate else []
        self._corruption = corruption_of(prepared, config.seed)
        pool_size = DROPPED_POOL_SIZE if rate else POOL_SIZE
        if self._corruption is not None:
            pool_size = max(64, CORRUPTED_POOL_TOKENS // prepared.train.blocks.block)
        pool_size = config.bucket_size or pool_size
        self.batches = Batches.of(
            prepared.train, config.tokens_per_batch, config.seed, pool_size, config.curriculum, config.max_batch_size
        )

    def starting(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        """Yield batches from a position on, each with the position after it."""
        make = self._dropped_pool if self._dropouts else self._corrupted_pool if self._corruption else self._pool
        source, target = self.prepared.source_tokenizer.specials, self.prepared.target_tokenizer.specials
        for after, (store, rows) in self.batches.starting(position, make):
            yield after, collate(store, rows, source, target).to(self.device)

    def _pool(self, epoch: int, pool: int) -> list[tuple[PairStore, Rows]]:
        store = self.prepared.train.of_epoch(self.config.seed, epoch)
        return [(store, rows) for rows in self.batches.pool(epoch, pool)]

    def _dropped_pool(self, epoch: int, pool: int) -> list[tuple[PairStore, Rows]]:
        start, rows = self.batches.rows(epoch, pool)
        texts = [self.prepared.train.text(int(row)) for row in rows]
        sides = []
        tags = self.prepared.report.tags
        leads = (0, 0) if tags is None else tags.lengths
        for side, (dropout, stored, limit, lead) in enumerate(
            zip(self._dropouts, self.prepared.train.pairs, self.limits, leads, strict=True)
        ):
            lines = [2 * (start + place) + side for place in range(len(rows))]
            tokens = dropout.encode_many([text[side] for text in texts], epoch, lines)
            sides.append(
                [
                    [*stored[int(row)][:lead].tolist(), *new]
                    if limit is None or lead + len(new) < limit
                    else stored[int(row)].tolist()
                    for new, row in zip(tokens, rows, strict=True)
                ]
            )
        return self._cut(PairStore.of(*sides), epoch, pool)

    def _corrupted_pool(self, epoch: int, pool: int) -> list[tuple[PairStore, Rows]]:
        assert self._corruption is not None
        start, rows = self.batches.rows(epoch, pool)
        blocks = self.prepared.train.of_epoch(self.config.seed, epoch).blocks
        return self._cut(PairStore.of(*self._corruption.pairs(blocks, rows, epoch, start)), epoch, pool)

    def _cut(self, store: PairStore, epoch: int, pool: int) -> list[tuple[PairStore, Rows]]:
        """Cut a pool that was made for this epoch into batches."""
        return self.batches.shuffled([(store, batch) for batch in self.batches.cut(store)], epoch, pool)


def corruption_of(prepared: Prepared, seed: int) -> Corruption | None:
    """What makes pairs of a corpus's blocks, where the recipe wants that."""
    if prepared.data.kind != "span_corruption":
        return None
    tokenizer = prepared.target_tokenizer
    return Corruption(tokenizer.sentinels, tokenizer.end, prepared.train.blocks.block, seed)
