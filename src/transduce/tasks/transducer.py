"""Base classes of the tasks whose models write tokens, and of those that train on blocks of plain text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

from transduce.config import Config, Table
from transduce.data.batching import PairBatch, collate
from transduce.data.prepared import Prepared
from transduce.data.settings import DEFAULT_BLOCK_SIZE, DataConfig, PlainTextConfig, reads_once
from transduce.errors import SettingsError
from transduce.inference.search.options import SearchOptions
from transduce.model_folder import ModelFolder
from transduce.models import catalog
from transduce.models.interface import AnyTransducer, Model, VocabularySizes
from transduce.nn.cpu.cross_entropy import CrossEntropy
from transduce.rng import Rows
from transduce.tasks.coverage import vocabulary_fit
from transduce.tasks.language_modeling.defaults import choose_settings, choose_tokenizer, count_characters
from transduce.tasks.language_modeling.preparation import TextPreparation
from transduce.tasks.translation.defaults import choose_fine_tuning
from transduce.text.corpus import read_documents
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.compatibility import outline
from transduce.training.config import TrainingConfig
from transduce.training.initial_checkpoint import InitialCheckpoint, load_all_weights
from transduce.training.loss import transducer_loss
from transduce.training.task import CardText, Defaults, Task

DataT = TypeVar("DataT", bound=DataConfig)
READ_ONCE = (
    "settings are chosen by reading the corpus, and standard input or a pipe can be read only once; "
    "give files, or a recipe with the tables tokenizer, model and training"
)


class TransducerTask(Task[DataT]):
    """A task whose model writes tokens: translation, span corruption, language modelling."""

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


TextT = TypeVar("TextT", bound=PlainTextConfig)


class PlainTextTask(TransducerTask[TextT]):
    """A task that trains on blocks of plain text: span corruption, language modelling."""

    rows = "blocks"

    def training_defaults(self) -> Table:
        return {"label_smoothing": 0.0}

    def complete_data(self, model: Config, where: str) -> TextT:
        most = self.largest_block(model)
        if most is not None and most < 2:
            raise SettingsError(
                f"{where}: a model of {position_limit(model)} positions is too short for plain text; set "
                f"model.max_positions to {self.fewest_positions} or more (256 is common)"
            )
        return self.data.but(block_size=self.data.block_size or most or DEFAULT_BLOCK_SIZE)

    fewest_positions = 2
    """The fewest positions that a model needs for a block of two tokens."""

    def largest_block(self, model: Config) -> int | None:
        """Return the largest block in tokens that fits a model's positions; None where there is no limit."""
        return position_limit(model)

    def mismatch(self, model: Config, tokenizer: TokenizerConfig, training: TrainingConfig) -> str | None:
        if (reason := super().mismatch(model, tokenizer, training)) is not None:
            return reason
        if not tokenizer.joint:
            return "plain text has one side and needs one tokenizer; leave out tokenizer.joint = false"
        if training.metric != "loss":
            return f"training.metric = '{training.metric}' is for pairs; plain text is measured by its loss"
        if training.bpe_dropout:
            return "training.bpe_dropout is for pairs, not for plain text; leave it out"
        most = self.largest_block(model)
        if most is not None and (self.data.block_size or 0) > most:
            return (
                f"data.block_size = {self.data.block_size} exceeds what the model can read, {most}; change one of them"
            )
        return None

    def choose_settings(self, given: Table, prepared: Prepared | None = None) -> Defaults:
        return choose_settings(self.characters(prepared), given, self.choose_model)

    @abstractmethod
    def choose_model(self, characters: int, reasons: list[str]) -> tuple[Table, float]:
        """Choose the table [model] and the learning rate by the characters of text, and add the reasons."""

    def choose_tokenizer(self, given: Table) -> Defaults | None:
        if any(map(reads_once, self.data.corpora)):
            return None
        return choose_tokenizer(self.characters(None), given)

    def choose_fine_tuning(
        self,
        checkpoint: InitialCheckpoint,
        given: Table,
        prepared: Prepared | None = None,
        before: Iterable[tuple[str, str]] | None = None,
    ) -> Defaults:
        characters = self.characters(prepared)
        by_characters = checkpoint.found.target_tokenizer.kind in ("character", "byte")
        tokens = characters / (1 if by_characters else 4)
        chosen = choose_fine_tuning(checkpoint, f"{characters:,} characters of text", tokens, given)
        fit = vocabulary_fit(checkpoint, self._texts() if prepared is None else (), before)
        return Defaults(chosen.tables, [*fit, *chosen.reasons])

    def languages_from(self, checkpoint: InitialCheckpoint) -> Table:
        language = checkpoint.found.notes.get("language")
        return {} if language is None else {"language": language}

    def _texts(self) -> Iterator[tuple[str, str]]:
        """The text as pairs without a source."""
        return (("", piece.text) for file in self.data.corpora for piece in read_documents(file))

    def characters(self, prepared: Prepared | None) -> int:
        """Count the characters of the training text, up to a bound."""
        if prepared is not None and prepared.report.train.text is not None:
            return prepared.report.train.text.characters
        if any(map(reads_once, self.data.corpora)):
            raise SettingsError(READ_ONCE)
        return count_characters(text for _, text in self._texts())

    preparation = TextPreparation

    def preparation_settings(self) -> Config:
        return self.data.but(block_size=None)

    def notes(self, search: SearchOptions, prepared: Prepared) -> Table:
        text = {"document": self.data.corpora[0].document, "block_size": self.data.block_size}
        return {"language": self.data.language, **super().notes(search, prepared), **text}

    def card(self, contents: ModelFolder, prepared: Prepared) -> CardText:
        return CardText(
            title=f"{catalog.name_of(contents.config)}, trained on text",
            tags="text-generation",
            languages=[contents.notes.get("language")],
            vocabulary=f"{contents.model.sizes.target:,} tokens",
            rows="blocks of text",
            units="text",
            use=self.use,
            call='transduce.load("THIS_FOLDER")("some text")',
        )

    use = "Continue a text with it: `transduce generate THIS_FOLDER`"
    """The model card's line about usage."""


def position_limit(model: Config) -> int | None:
    """Return the most tokens that a model can read and write at once; None where there is no limit."""
    built = outline(model, VocabularySizes(1, 1))
    return min((limit for limit in (built.max_source, built.max_target) if limit is not None), default=None)
