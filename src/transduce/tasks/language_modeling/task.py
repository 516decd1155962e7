"""Language modelling: blocks of plain text, each token predicted from those before it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from transduce.config import Config, Table
from transduce.data.prepared import Prepared
from transduce.data.settings import PlainTextConfig
from transduce.data.store import Blocks
from transduce.inference.search.options import GENERATION_DEFAULTS, Request, SearchOptions, generation_options
from transduce.inference.torch_engine import TorchEngine
from transduce.models import catalog
from transduce.models.interface import AnyTransducer, Model
from transduce.tasks.language_modeling.defaults import choose_decoder
from transduce.tasks.transducer import PlainTextTask
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.config import TrainingConfig
from transduce.training.reporter import Sample
from transduce.training.task import BatchSource
from transduce.training.validation import NUM_SAMPLES, Predictions, Validator
from transduce.training.workers import Workers


class LanguageModelingConfig(PlainTextConfig):
    """Plain text to train, validate and test on: `{text = "corpus.txt"}`.

    Each corpus is one stream of tokens with the end token before each document, which is cut into blocks.
    """

    kind: ClassVar[str] = "language_modeling"


MAX_PROMPT, MAX_CONTINUATION = 32, 48
"""Tokens of a block that are given, and tokens that are generated; fewer where a block is short."""


class Continuations:
    """Continues the beginnings of a few blocks, evenly spread; the same random draws each time."""

    def __init__(self, blocks: Blocks, tokenizer: AnyTokenizer) -> None:
        self.blocks, self.tokenizer = blocks, tokenizer

    def __call__(self, workers: Workers) -> Predictions:
        """Sample with one thread."""
        return Predictions(samples=workers.each(lambda model, _: self.samples(model), 1)[0])

    def samples(self, model: AnyTransducer) -> tuple[Sample, ...]:
        """Return the continuations next to the true text."""
        blocks, tokenizer = self.blocks, self.tokenizer
        rows = np.unique(np.linspace(0, len(blocks) - 1, num=min(NUM_SAMPLES, len(blocks))).astype(np.int64))
        found = [block.tolist() for block in blocks.rows_of(rows)]
        given = [max(1, min(MAX_PROMPT, len(tokens) // 2)) for tokens in found]
        default = SearchOptions.from_table(GENERATION_DEFAULTS, "continuations")
        options = default.but(max_length=min(MAX_CONTINUATION, blocks.block), seed=1)
        requests = [
            Request(number, (), options, prefix=tokens[1:prompt], first=tokens[0])
            for number, (tokens, prompt) in enumerate(zip(found, given, strict=True))
        ]
        hypotheses = TorchEngine(model, tokenizer.specials, tokenizer.specials).translate(requests)
        return tuple(
            Sample(
                source=tokenizer.decode(tokens[:prompt]),
                reference=tokenizer.decode(tokens[prompt : prompt + MAX_CONTINUATION]),
                translation=tokenizer.decode(hypothesis[0].tokens[prompt - 1 :]),
            )
            for tokens, prompt, hypothesis in zip(found, given, hypotheses, strict=True)
        )


class LanguageModelingTask(PlainTextTask[LanguageModelingConfig]):
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
