"""Text encoding: examples with a label each, a label per word, an answer in a context, or masked tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from transduce.config import Config, Table
from transduce.data.order import BUCKET_SIZE
from transduce.data.prepared import Prepared
from transduce.data.store import ExampleStore
from transduce.errors import SettingsError
from transduce.evaluation.labels import SCORES
from transduce.inference.search.options import SearchOptions
from transduce.model_folder import ModelFolder
from transduce.models import catalog
from transduce.models.interface import EncoderModel, Model
from transduce.nn.cpu.cross_entropy import CrossEntropy
from transduce.rng import Rows
from transduce.tasks.text_encoding.batches import EncoderBatch, collate_examples, encoder_loss
from transduce.tasks.text_encoding.config import TextEncodingConfig, saved_column
from transduce.tasks.text_encoding.corpus import read_examples
from transduce.tasks.text_encoding.defaults import (
    PIECES_PER_WORD,
    Amount,
    choose_fine_tuning,
    choose_settings,
    count_examples,
)
from transduce.tasks.text_encoding.evaluation import ExamplePredictions
from transduce.tasks.text_encoding.masking import Masking
from transduce.tasks.text_encoding.preparation import ExamplePreparation
from transduce.text.encoder_input import label_tokens
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.config import TrainingConfig
from transduce.training.initial_checkpoint import InitialCheckpoint, added_tokens, load_matching_weights
from transduce.training.task import BatchSource, CardText, Defaults, Task
from transduce.training.validation import Validator
from transduce.training.workers import Workers

MASKED_POOL_SIZE = 8_192
"""Rows that are masked together: less than a second's work."""
VALIDATION_SEED = 0
"""Seed of the masks of a validation, the same at every validation of every run."""
FOR_PAIRS = ("bpe_dropout", "guided_alignment", "recombination", "source_vectors", "target_vectors")
"""Settings of [training] that do not apply to text encoders."""
NOTED = ("objective", "language", "max_length", "stride", "allow_no_answer")
"""Settings of [data] that a model folder states."""


class TextEncodingTask(Task[TextEncodingConfig]):
    """Examples for models that encode texts and write none."""

    name = "text_encoding"

    def training_defaults(self) -> Table:
        return {"label_smoothing": 0.0}

    def complete_model(self, model: Config, given: Table, where: str) -> Config:
        """Give a text encoder the head that its objective needs; [model] may not name another."""
        data, name = self.data, catalog.name_of(model)
        if not catalog.is_text_encoder(model):
            return model
        if data.head not in get_args(type(model).model_fields["head"].annotation):
            raise SettingsError(f"{where}: a {name} has no head for objective {data.objective}; use a bert")
        head = given.get("head", data.head)
        if head not in (data.head, "none"):
            raise SettingsError(f"{where}: objective {data.objective} needs model.head = '{data.head}', not '{head}'")
        more = {"next_sentence": data.next_sentence} if data.objective == "mask" else {}
        return model.but(head=data.head, **more)

    def mismatch(self, model: Config, tokenizer: TokenizerConfig, training: TrainingConfig) -> str | None:
        data, name = self.data, catalog.name_of(model)
        if not catalog.is_text_encoder(model):
            return (
                f"data.objective = '{data.objective}' is for text encoders, and a {name} is none; "
                "set model.preset = 'bert_mini'"
            )
        if (contexts := self._context_file()) and not catalog.accepts_context(model):
            return f"{contexts} has any number of texts per example, and a {name} two; set model.preset = 'memn2n'"
        if (limit := _learned_positions(model)) is not None and data.max_length > limit:
            return (
                f"data.max_length = {data.max_length} exceeds the model's {limit} learned positions; "
                "set data.max_length or model.max_positions"
            )
        linear = getattr(model, "linear_updates", 0)
        if training.is_planned and linear >= training.updates:
            return (
                f"model.linear_updates = {linear:,} leaves none of {training.updates:,} updates with softmax; set it "
                f"to about half of them (--set model.linear_updates={training.updates // 2})"
            )
        if given := [setting for setting in FOR_PAIRS if getattr(training, setting)]:
            return f"training.{given[0]} is for translation; leave it out for a text encoder"
        if training.metric not in (known := ("loss", *SCORES[data.objective])):
            return (
                f"training.metric = '{training.metric}': objective {data.objective} is measured by {', '.join(known)}"
            )
        return None

    def _context_file(self) -> str | None:
        """Name the first file in bAbI's format, if there is one."""
        every = [files for name in ("train", "validation", "test") for files in self.data.of_split(name)]
        return next((files.path for files in every if files.layout(self.data.objective) == "babi"), None)

    def choose_settings(self, given: Table, prepared: Prepared | None = None) -> Defaults:
        return choose_settings(self.data.objective, self._amount(prepared), self._context_file() is not None)

    def choose_tokenizer(self, given: Table) -> Defaults | None:
        contexts = self._context_file() is not None
        tables = choose_settings(self.data.objective, Amount(0, 0), contexts).tables
        return Defaults(tables, ["words, in lower case" if contexts else "WordPiece, as in BERT"])

    def _amount(self, prepared: Prepared | None) -> Amount:
        if prepared is not None:
            tokens = prepared.report.train.source.tokens
            return Amount(prepared.report.train.kept, round(tokens / PIECES_PER_WORD))
        if self.data.objective == "mask":
            return Amount(0, 0)  # its settings do not depend on it
        files = self.data.of_split("train")
        return count_examples(chain.from_iterable(read_examples(one, self.data.objective) for one in files))

    def choose_fine_tuning(
        self,
        checkpoint: InitialCheckpoint,
        given: Table,
        prepared: Prepared | None = None,
        before: Iterable[tuple[str, str]] | None = None,
    ) -> Defaults:
        chosen = choose_fine_tuning(self.data.objective)
        return Defaults(chosen.tables, chosen.reasons[1:])

    preparation = ExamplePreparation

    def with_labels(self, model: Config, prepared: Prepared) -> Config:
        """Give the head as many classes as there are labels, with their words where the model predicts words."""
        if getattr(model, "head", None) not in ("labels", "tags"):
            return model
        labels = prepared.report.labels or ("",)
        words = {"label_tokens": label_tokens(prepared.source_tokenizer, labels)}
        return model.but(num_labels=len(labels), **(words if catalog.labels_are_words(model) else {}))

    def without_labels(self, model: Config) -> Config:
        if not catalog.is_text_encoder(model):
            return model
        return model.but(num_labels=1, **({"label_tokens": ()} if catalog.labels_are_words(model) else {}))

    def collate(self, prepared: Prepared, split: Any, rows: Rows) -> EncoderBatch:
        return collate_examples(split, rows, prepared.source_tokenizer.specials, self.data.objective)

    def loss(self, model: EncoderModel, batch: EncoderBatch, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
        return encoder_loss(model, batch, smoothing, r_drop)

    def batch_source(self, prepared: Prepared, config: TrainingConfig, model: Model) -> BatchSource:
        rewrite, bucket_size = None, BUCKET_SIZE
        if self.data.objective == "mask":
            masking = Masking(self.data, prepared.source_tokenizer, config.seed)
            rewrite, bucket_size = _masked_rows(masking, prepared.train_as(ExampleStore)), MASKED_POOL_SIZE
        collate = partial(self.collate, prepared)
        return BatchSource(prepared.train, collate, config, model.device, rewrite, bucket_size)

    def validator(self, prepared: Prepared, split: Any, config: TrainingConfig, workers: Workers) -> Validator:
        predict = ExamplePredictions(self.data, prepared, split)
        if self.data.objective == "mask":
            masking = Masking(self.data, prepared.source_tokenizer, VALIDATION_SEED)
            split = _masked_rows(masking, split)(np.arange(len(split)), 0, 0)
        return Validator(split, partial(self.collate, prepared), self.loss, config, workers, predict)

    def largest_batch(self, prepared: Prepared, tokens: int) -> EncoderBatch:
        """For mask, every seventh token is masked."""
        length = prepared.report.train.source.longest + 2
        rows = max(1, tokens // length)
        texts = torch.zeros(rows, length, dtype=torch.int64)
        labels = texts[:, : {"classify": 1, "answer": 2}.get(self.data.objective, length)].clone()
        if self.data.objective == "mask":
            labels[:, 1:] = torch.where(torch.arange(1, length) % 7 == 0, 0, -1)
        return EncoderBatch(
            tokens=texts,
            allowed=torch.ones_like(texts, dtype=torch.bool),
            segments=texts,
            labels=labels,
            num_target_tokens=rows,
            num_rows=rows,
            rows=np.zeros(rows, dtype=np.int64),
        )

    def initialize(self, model: Model, folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> str:
        """Load the weights that match: the head is new for every objective."""
        if added_tokens(folder, source, target)["source"]:
            raise SettingsError(f"{folder}: has fewer tokens than the corpus; a text encoder keeps its vocabulary")
        return f"starting from {folder}: {load_matching_weights(model, folder)}"

    def notes(self, search: SearchOptions, prepared: Prepared) -> Table:
        columns = self.data.of_split("train")[0].to_table()
        kept = ("text", "second_text", "label", *(["format"] if columns.get("format") == "babi" else []))
        return {
            **{name: getattr(self.data, name) for name in NOTED},
            "labels": list(prepared.report.labels or ()),
            "columns": {name: saved_column(columns[name]) for name in kept if columns.get(name) is not None},
        }

    def card(self, contents: ModelFolder, prepared: Prepared) -> CardText:
        labels = contents.notes.get("labels") or ()
        listed = f", {len(labels)} labels: {', '.join(labels)}" if labels else ""
        return CardText(
            title=f"{catalog.name_of(contents.config)}, {self.data.objective}{listed}",
            tags="feature-extraction",
            languages=[contents.notes.get("language")],
            vocabulary=f"{contents.model.sizes.source:,} tokens",
            rows="rows",
            units="examples",
            use="Predict with it: `transduce predict THIS_FOLDER`; embed texts: `transduce embed THIS_FOLDER`",
            call='transduce.load("THIS_FOLDER").embed(["some text"])',
            decodes=False,
        )


def _masked_rows(masking: Masking, split: ExampleStore) -> Callable[[Rows, int, int], ExampleStore]:
    """Return what masks rows of a split anew for each epoch."""
    return lambda rows, epoch, _: ExampleStore.of(*masking.examples(split, rows.tolist(), epoch))


def _learned_positions(model: Config) -> int | None:
    """Return the size of a model's table of positions; None where it has none and encodes texts of any length."""
    return getattr(model, "max_positions", None) if getattr(model, "positions", "none") == "learned" else None
