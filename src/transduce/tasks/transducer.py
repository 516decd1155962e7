"""What translation, span corruption and language modelling have in common: models that write text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import torch

from transduce.config import Config, Table
from transduce.data.batching import PairBatch, collate
from transduce.data.prepared import Prepared
from transduce.data.settings import DataConfig
from transduce.inference.search.options import SearchOptions
from transduce.models import catalog
from transduce.models.interface import AnyTransducer, Model
from transduce.nn.cpu.cross_entropy import CrossEntropy
from transduce.rng import Rows
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.config import TrainingConfig
from transduce.training.initial_weights import load_all_weights
from transduce.training.loss import transducer_loss
from transduce.training.task import Task

DataT = TypeVar("DataT", bound=DataConfig)
READ_ONCE = (
    "settings are chosen by reading the corpus, and standard input or a pipe can be read only once; "
    "give files, or a recipe with the tables tokenizer, model and training"
)


class TransducerTask(Task[DataT]):
    """A task whose model writes tokens."""

    def collate(self, prepared: Prepared, split: Any, rows: Rows) -> PairBatch:
        return collate(split, rows, prepared.source_tokenizer.specials, prepared.target_tokenizer.specials)

    def loss(self, model: AnyTransducer, batch: PairBatch, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
        return transducer_loss(model, batch, smoothing, r_drop)

    def mismatch(self, model: Config, tokenizer: TokenizerConfig, training: TrainingConfig) -> str | None:
        if catalog.is_text_encoder(model):
            name = catalog.name_of(model)
            return f"a {name} encodes texts and writes none; set data.objective to mask, classify, tag or answer"
        return self.model_mismatch(model)

    def model_mismatch(self, model: Config) -> str | None:
        """Return why a model that writes cannot learn from this corpus; None if it can."""
        return None

    def largest_batch(self, prepared: Prepared, tokens: int) -> PairBatch:
        source_length, target_length = prepared.longest
        rows = max(1, tokens // (1 + max(source_length, target_length)))
        source = torch.full((rows, source_length + 1), prepared.source_tokenizer.end)
        target = torch.full((rows, target_length + 2), prepared.target_tokenizer.end)
        return PairBatch(
            source=source,
            source_allowed=torch.ones_like(source, dtype=torch.bool),
            target=target,
            target_lengths=torch.full((rows,), target_length + 1),
            num_target_tokens=rows * (target_length + 1),
            rows=torch.zeros(rows, dtype=torch.int64).numpy(),
        )

    def initialize(self, model: Model, folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> str:
        added = load_all_weights(model, folder, source, target)
        more = f", with {added:,} new token{'s' * (added > 1)}" if added else ""
        return f"starting from the weights of {folder}{more}"

    def notes(self, search: SearchOptions, prepared: Prepared) -> Table:
        return {"search": search.to_table()}
