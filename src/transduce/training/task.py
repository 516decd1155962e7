"""The interface of a task (translation, language modelling, text encoding) to training, recipe and command line.

A task owns its default settings, the preparation of its corpora, its batches, loss and validation, and the notes and
card of its model folder. Each is bound to its `[data]` settings. The classes are in `tasks/`, one folder each; nothing
here depends on which there are.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch

from transduce.config import Config, Table
from transduce.data.batching import Batch
from transduce.data.order import BUCKET_SIZE, BatchSampler, Position
from transduce.data.prepared import GivenTokenizers, Preparation, Prepared
from transduce.data.report import Report
from transduce.data.settings import DataConfig
from transduce.data.store import Split
from transduce.errors import SettingsError
from transduce.inference.search.options import SearchOptions
from transduce.model_folder import ModelFolder
from transduce.models.interface import Model
from transduce.nn.cpu.cross_entropy import CrossEntropy
from transduce.rng import Rows
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.config import TrainingConfig
from transduce.training.initial_checkpoint import InitialCheckpoint
from transduce.training.prefetch import prefetched
from transduce.training.validation import Validator
from transduce.training.workers import Workers

Rewrite = Callable[[Rows, int, int], Split]
"""(rows of a pool, epoch, place of the pool's first row in the epoch) -> the rows as they are read in this epoch."""


class BatchSource:
    """The training batches of a run as tensors, from any position on.

    In some runs the tokens differ between epochs: BPE-dropout tokenises each line anew, span corruption and masking
    draw new spans. The task then passes `rewrite`, which makes the rows of one pool; the pool is split into batches by
    their new lengths. A rewritten row is a function of (seed, epoch, place), so a resumed run makes the same pool.
    """

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
        """Yield batches from a position on, each with the position after it; for a GPU, made ahead by a thread."""
        found = ((after, self._collate(*of)) for after, of in self.batches.starting(position, self._pool))
        if self.device.type == "cpu":
            yield from found
            return
        with contextlib.closing(self._ahead(found)) as ahead:
            for after, batch in ahead:
                yield after, batch.to(self.device)

    def _ahead(self, found: Iterator[tuple[Position, Batch]]) -> Generator[tuple[Position, Batch]]:
        if self.device.type != "cuda":
            return prefetched(found)
        index = torch.cuda.current_device()  # each thread has a current device of its own
        pinned = ((after, batch.pinned()) for after, batch in found)
        return prefetched(pinned, begin=lambda: torch.cuda.set_device(index))

    def _pool(self, epoch: int, pool: int) -> list[tuple[Split, Rows]]:
        if self._rewrite is None:
            split = self.split.of_epoch(self.config.seed, epoch)
            return [(split, rows) for rows in self.batches.bucket(epoch, pool)]
        start, rows = self.batches.rows(epoch, pool)
        split = self._rewrite(rows, epoch, start)
        return self.batches.shuffled([(split, batch) for batch in self.batches.cut(split)], epoch, pool)


DataT = TypeVar("DataT", bound=DataConfig)


@dataclass(frozen=True)
class Defaults:
    """Tables of a recipe that were chosen, and a sentence for each choice."""

    tables: Table
    reasons: list[str]


@dataclass(frozen=True)
class CardText:
    """The parts of a model card that depend on the task."""

    title: str
    tags: str
    """Comma-separated tags of the header that model hubs read."""
    languages: list[str | None]
    vocabulary: str
    """Vocabulary sizes in words."""
    rows: str
    """What the training rows are called."""
    units: str
    """What validation is measured on: pairs, text or examples."""
    use: str
    """How to use the model from the command line."""
    call: str
    """The same in Python."""
    decodes: bool = True
    """Whether only the first `training.decode_examples` are scored by other metrics than the loss."""


class Task(ABC, Generic[DataT]):
    """A task, bound to the `[data]` settings of one run."""

    name: ClassVar[str]
    """translation, language_modeling or text_encoding; a model folder states it as `task`."""
    rows: ClassVar[str] = "pairs"
    """What progress reports count."""

    def __init__(self, data: DataT) -> None:
        self.data = data

    # Settings: defaults and mismatches.

    def training_defaults(self) -> Table:
        """Return the settings of [training] whose defaults differ from `TrainingConfig`'s."""
        return {}

    def tokenizer_defaults(self, given: Table) -> Table:
        """Return the settings of [tokenizer] whose defaults differ, given the others."""
        return {}

    def search_table(self, given: Table) -> Table:
        """Return the table [search] with the task's own defaults."""
        return given

    def complete_data(self, model: Config, training: TrainingConfig, where: str) -> DataT:
        """Return the [data] settings with what follows from the model and the training settings."""
        return self.data

    def complete_model(self, model: Config, given: Table, where: str) -> Config:
        """Return the [model] settings with what follows from the data; `given` is the table as written."""
        return model

    @abstractmethod
    def mismatch(self, model: Config, tokenizer: TokenizerConfig, training: TrainingConfig) -> str | None:
        """Return why these settings cannot be used with this corpus, and what to change; None if they can."""

    def check(self, model: Config, tokenizer: TokenizerConfig, training: TrainingConfig, where: str) -> None:
        """Raise a `SettingsError` if these settings cannot be used with this corpus."""
        reason = self.mismatch(model, tokenizer, training)
        if reason is not None:
            raise SettingsError(f"{where}: {reason}")

    @abstractmethod
    def choose_settings(self, given: Table, prepared: Prepared | None = None) -> Defaults:
        """Choose tokenizer, model and training from the corpus; `given` is the table [tokenizer] as written."""

    @abstractmethod
    def choose_tokenizer(self, given: Table) -> Defaults | None:
        """Choose the tokenizer alone; None where the corpus can be read only once."""

    @abstractmethod
    def choose_fine_tuning(
        self,
        checkpoint: InitialCheckpoint,
        given: Table,
        prepared: Prepared | None = None,
        before: Iterable[tuple[str, str]] | None = None,
    ) -> Defaults:
        """Choose [training] for fine-tuning a model on this corpus.

        `given` is the table [training] as written, `before` the text pairs that the model was trained on, if known.
        """

    def languages_from(self, checkpoint: InitialCheckpoint) -> Table:
        """Return the settings of [data] that fine-tuning takes over from the initial checkpoint."""
        return {}

    # The corpus.

    preparation: ClassVar[type[Preparation[Any]]]
    """How its corpora are prepared."""

    def prepare(
        self,
        tokenizer: TokenizerConfig,
        folder: Path,
        progress: Callable[[str, int], None] | None = None,
        given: GivenTokenizers | None = None,
    ) -> Report:
        """Prepare the corpora into `folder`, which is complete or absent."""
        return self.preparation(self.data, tokenizer, progress, given).run(folder)

    def preparation_settings(self) -> Config:
        """Return the [data] settings without those that preparation does not depend on."""
        return self.data

    def texts(self, prepared: Prepared) -> Iterator[tuple[str, str]] | None:
        """Return the training pairs as text; None where the prepared corpus keeps no pairs."""
        return None

    def with_labels(self, model: Config, prepared: Prepared) -> Config:
        """Return the [model] settings with what is counted in the prepared corpus."""
        return model

    def without_labels(self, model: Config) -> Config:
        """Return the [model] settings as they were before the corpus was prepared."""
        return model

    # Training.

    @abstractmethod
    def collate(self, prepared: Prepared, split: Any, rows: Rows) -> Batch:
        """Return rows of a split as tensors."""

    @abstractmethod
    def loss(self, model: Any, batch: Any, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
        """Return the loss of a batch, summed over its target tokens."""

    @abstractmethod
    def batch_source(self, prepared: Prepared, config: TrainingConfig, model: Model) -> BatchSource:
        """Return the training batches."""

    @abstractmethod
    def validator(self, prepared: Prepared, split: Any, config: TrainingConfig, workers: Workers) -> Validator:
        """Return what validates a model on one split."""

    @abstractmethod
    def largest_batch(self, prepared: Prepared, tokens: int) -> Batch:
        """Return a micro-batch of about `tokens` with rows as long as the longest, to measure memory with."""

    def initialize(self, model: Model, folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> str:
        """Load the weights of an initial checkpoint into a model; return one line about it."""
        raise NotImplementedError

    def tune_search(
        self, search: SearchOptions, prepared: Prepared, config: TrainingConfig, workers: Workers
    ) -> tuple[SearchOptions, str] | None:
        """Choose search options on validation data for a trained model, and say why; None where there are none."""
        return None

    # The model folder.

    @abstractmethod
    def notes(self, search: SearchOptions, prepared: Prepared) -> Table:
        """Return what a model folder states besides the model's settings."""

    @abstractmethod
    def card(self, contents: ModelFolder, prepared: Prepared) -> CardText:
        """Return the task's part of the model card."""
