"""Base classes of the tasks whose models write tokens, and of those that train on blocks of plain text."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from transduce.config import Config, Table
from transduce.data.batching import PairBatch, collate
from transduce.data.prepared import Prepared
from transduce.data.settings import DEFAULT_BLOCK_SIZE, DataConfig, PlainTextConfig, reads_once
from transduce.errors import SettingsError
from transduce.inference.search.options import SearchOptions
from transduce.model_folder import ModelFolder
from transduce.models import catalog
from transduce.models.guided_alignment import alignment_loss, record_scores
from transduce.models.interface import AnyTransducer, Model, VocabularySizes, collect_losses
from transduce.nn.cpu.cross_entropy import CrossEntropy, linear_cross_entropy, paired_cross_entropy
from transduce.nn.dropout import begin_pass
from transduce.rng import Rows
from transduce.tasks.language_modeling.defaults import choose_settings, choose_tokenizer, count_characters
from transduce.tasks.language_modeling.preparation import TextPreparation
from transduce.tasks.translation.defaults import choose_fine_tuning
from transduce.text.corpus import read_documents
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import LETTERS
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.compatibility import outline
from transduce.training.config import TrainingConfig
from transduce.training.initial_checkpoint import InitialCheckpoint, load_all_weights
from transduce.training.task import CardText, Defaults, Task

# How well a vocabulary fits a text: tokens per word, and how much of the text it cannot represent.

SAMPLED_PAIRS = 10_000
"""Pairs that a vocabulary is measured on."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class VocabularyCoverage:
    """Counts over some text."""

    words: int
    tokens: int
    unknown: int
    """Unknown tokens."""
    broken: int
    """Tokens that are single bytes of a character: how lossless tokenizers spell characters they lack."""

    @property
    def tokens_per_word(self) -> float:
        """The lower the better; 1.1 to 1.5 are common for the language a tokenizer was trained on."""
        return self.tokens / max(1, self.words)

    def __str__(self) -> str:
        """Summarise in a few words."""
        text = f"{self.tokens_per_word:.2f} tokens per word"
        for count, what in ((self.unknown, "unknown"), (self.broken, "single bytes of a character")):
            if count:
                text += f", {count / max(1, self.tokens):.2%} of them {what}"
        return text


def coverage(tokenizer: AnyTokenizer, texts: Iterable[str]) -> VocabularyCoverage:
    """Count the tokens of texts; words are separated by spaces."""
    lines = list(texts)
    rows = tokenizer.encode_batch(lines)
    shown = tokenizer.pieces(range(tokenizer.size))
    bytes_ = {token for token, piece in enumerate(shown) if _BYTE.search(piece)}
    return VocabularyCoverage(
        words=sum(len(line.split()) for line in lines),
        tokens=sum(map(len, rows)),
        unknown=sum(map(tokenizer.count_unknown, rows)),
        broken=sum(token in bytes_ for row in rows for token in row),
    )


def vocabulary_fit(
    checkpoint: InitialCheckpoint, new: Iterable[tuple[str, str]], before: Iterable[tuple[str, str]] | None
) -> list[str]:
    """Describe how well a checkpoint's vocabulary fits new text, next to the text that it was trained on, if known.

    Plain text comes as pairs without a source.
    """
    sides = (("source", checkpoint.found.source_tokenizer), ("target", checkpoint.found.target_tokenizer))
    fits, own = _both_sides(checkpoint, new), None if before is None else _both_sides(checkpoint, before)
    reasons = []
    for side, (name, tokenizer) in enumerate(sides):
        if not fits[side].words:
            continue
        compared = "" if own is None else f" (in {checkpoint.data}: {own[side]})"
        reasons.append(f"keeping the {tokenizer.size:,} {name} tokens of {checkpoint.name}: {fits[side]}{compared}")
    return reasons


def _both_sides(
    checkpoint: InitialCheckpoint, pairs: Iterable[tuple[str, str]]
) -> tuple[VocabularyCoverage, VocabularyCoverage]:
    sample = list(islice(pairs, SAMPLED_PAIRS))
    source = coverage(checkpoint.found.source_tokenizer, (source for source, _ in sample))
    return source, coverage(checkpoint.found.target_tokenizer, (target for _, target in sample))


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


FOR_PAIRS = ("bpe_dropout", "guided_alignment", "recombination")
"""Settings of [training] that do not apply to plain text."""


class PlainTextTask(TransducerTask[TextT]):
    """A task that trains on blocks of plain text: span corruption, language modelling."""

    rows = "blocks"

    def training_defaults(self) -> Table:
        return {"label_smoothing": 0.0}

    def complete_data(self, model: Config, training: TrainingConfig, where: str) -> TextT:
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
        if given := [name for name in FOR_PAIRS if getattr(training, name)]:
            return f"training.{given[0]} is for pairs, not for plain text; leave it out"
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
        by_characters = checkpoint.found.target_tokenizer.kind in LETTERS
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


# The loss: cross-entropy under teacher forcing, with label smoothing (section 5.4).


def transducer_loss(model: AnyTransducer, batch: PairBatch, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
    """Encode the source, then predict every target token from the reference tokens before it, all at once.

    Only real tokens are scored: the output layer is the most expensive one, and padding needs no score. With
    `r_drop` there are two forward passes with different dropout, whose predictions should agree. A batch with a guide
    has a second loss, by which one attention head learns its alignments.
    """
    pick = batch.picker(batch.is_predicted)  # not by the pad token: an imported tokenizer may pad with the end token
    output_N = pick(batch.target[:, 1:])

    def forward(number: int) -> Tensor:
        begin_pass(model, number)
        memory = model.encode(batch.source, batch.source_allowed)
        if batch.guide is None:
            hidden_BTD: Tensor = model(batch.target[:, :-1], memory)
            return pick(hidden_BTD)
        with record_scores(model, model.alignment_heads[0]) as scores:
            hidden_BTD = model(batch.target[:, :-1], memory)
        guided.append(alignment_loss(scores[0], batch.source_allowed, batch.guide))
        return pick(hidden_BTD)

    guided: list[Tensor] = []
    output, half = model.output, model.output.half_products and model.training
    twice = r_drop > 0 and model.training
    with collect_losses(model.auxiliary_losses) as costs:
        hidden = [forward(number) for number in range(2 if twice else 1)]
    if twice:
        pair = (hidden[0], hidden[1])
        loss = paired_cross_entropy(pair, output.weight, output.bias, output_N, smoothing, r_drop, half)
    else:  # the output layer comes last: of a sharded model only modules that have run are gathered
        loss = linear_cross_entropy(hidden[0], output.weight, output.bias, output_N, smoothing, half)
    for loss_of_pass in guided:
        loss = loss._replace(smoothed=loss.smoothed + loss_of_pass / len(hidden))
    for side, cost_BN in costs:
        real_cost = pick(cost_BN) if side == "target" else cost_BN
        loss = loss._replace(smoothed=loss.smoothed + real_cost.sum() / len(hidden))
    return loss
