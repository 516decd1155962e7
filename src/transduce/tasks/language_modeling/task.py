"""Language modelling: blocks of plain text, each token predicted from those before it."""

from __future__ import annotations

from functools import partial
from typing import Any

from transduce.config import Config, Table
from transduce.data.prepared import Prepared
from transduce.inference.search.options import generation_options
from transduce.models import catalog
from transduce.models.interface import Model
from transduce.tasks.language_modeling.config import LanguageModelingConfig
from transduce.tasks.language_modeling.defaults import choose_decoder
from transduce.tasks.language_modeling.validation import Continuations
from transduce.tasks.plain_text import PlainTextTask
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.batch_source import BatchSource
from transduce.training.config import TrainingConfig
from transduce.training.validation import Validator
from transduce.training.workers import Workers


class LanguageModeling(PlainTextTask[LanguageModelingConfig]):
    """Plain text, for models that have no source."""

    name = "language_modeling"

    def choose_model(self, characters: int, reasons: list[str]) -> tuple[Table, float]:
        return choose_decoder(characters, reasons)

    def search_table(self, given: Table) -> Table:
        return generation_options(given)

    def model_mismatch(self, model: Config) -> str | None:
        if catalog.is_language_model(model):
            return None
        name = catalog.name_of(model)
        return (
            f"plain text is for a language model, such as gpt, or for a {name} with data.objective = 'span_corruption'"
        )

    def mismatch(self, model: Config, tokenizer: TokenizerConfig, training: TrainingConfig) -> str | None:
        if (reason := super().mismatch(model, tokenizer, training)) is not None:
            return reason
        if training.source_vectors or training.target_vectors:
            return (
                f"source_vectors and target_vectors are for encoder-decoder models, not for a {catalog.name_of(model)}"
            )
        return None

    def batch_source(self, prepared: Prepared, config: TrainingConfig, model: Model) -> BatchSource:
        return BatchSource(prepared.train, partial(self.collate, prepared), config, model.device)

    def validator(self, prepared: Prepared, split: Any, config: TrainingConfig, workers: Workers) -> Validator:
        predict = Continuations(split.blocks, prepared.target_tokenizer) if config.decode_examples else None
        report = prepared.report.validation if split is prepared.validation else prepared.report.extra_validation
        text_bytes = 0 if report is None or report.text is None else report.text.bytes
        collate = partial(self.collate, prepared)
        return Validator(split, collate, self.loss, config, workers, predict, text_bytes)
