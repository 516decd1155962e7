"""Translation: pairs of source and target text, or pairs made of plain text by span corruption."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from transduce.config import Config, Table
from transduce.data.batching import PairBatch, with_guide
from transduce.data.order import BUCKET_SIZE
from transduce.data.prepared import Prepared
from transduce.data.recombination import Recombination
from transduce.data.settings import reads_once
from transduce.data.store import BlockStore, PairStore
from transduce.errors import SettingsError
from transduce.evaluation.metrics import METRICS
from transduce.inference.search.options import SearchOptions
from transduce.model_folder import ModelFolder
from transduce.models import catalog
from transduce.models.interface import Model, VocabularySizes
from transduce.rng import Rows
from transduce.tasks.language_modeling.defaults import choose_encoder_decoder
from transduce.tasks.transducer import READ_ONCE, PlainTextTask, TransducerTask, position_limit, vocabulary_fit
from transduce.tasks.translation.config import SpanCorruptionConfig, TranslationConfig, corpus_pairs
from transduce.tasks.translation.defaults import (
    FEWEST_VALIDATED,
    IMAGE_TOKENIZER,
    choose_captioner,
    choose_fine_tuning,
    choose_settings,
    choose_tokenizer,
    choose_validation,
)
from transduce.tasks.translation.evaluation import GreedyTranslations
from transduce.tasks.translation.preparation import PairPreparation
from transduce.tasks.translation.search_tuning import tune_search
from transduce.tasks.translation.span_corruption import Corruption, largest_corrupted
from transduce.tasks.translation.survey import Survey, survey, surveyed_metrics
from transduce.text.tokenizer.bpe_dropout import BpeDropout
from transduce.text.tokenizer.special import SENTINELS
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.compatibility import outline
from transduce.training.config import TrainingConfig
from transduce.training.initial_checkpoint import InitialCheckpoint
from transduce.training.task import BatchSource, CardText, Defaults, Rewrite
from transduce.training.validation import Validator
from transduce.training.workers import Workers

REWRITTEN_POOL_SIZE = 8_192
"""Rows that BPE-dropout tokenises, or recombination makes, together: about a second's work, done every half minute."""

CORRUPTED_POOL_TOKENS = 2**20
"""Tokens of the blocks that are corrupted together."""

Limits = tuple[int | None, int | None]
"""Most source and target tokens that a model can read, start and end among them; None for no limit."""


class TranslationTask(TransducerTask[TranslationConfig]):
    """Pairs of source and target."""

    name = "translation"

    def model_mismatch(self, model: Config) -> str | None:
        if catalog.is_language_model(model):
            name = catalog.name_of(model)
            return f"{name} is a language model and learns from plain text: data.train = {{text = 'corpus.txt'}}"
        return None

    def mismatch(self, model: Config, tokenizer: TokenizerConfig, training: TrainingConfig) -> str | None:
        if (reason := super().mismatch(model, tokenizer, training)) is not None:
            return reason
        if (reason := self._image_mismatch(model, tokenizer)) is not None:
            return reason
        if training.guided_alignment and (reason := self._guided_mismatch(training)) is not None:
            return f"training.guided_alignment {reason}"
        if training.recombination and (reason := self._recombination_mismatch(training)) is not None:
            return f"training.recombination {reason}"
        if training.metric not in (known := ("loss", *METRICS)):
            return (
                f"training.metric = '{training.metric}' is for text encoders; pairs are measured by {', '.join(known)}"
            )
        if training.metric != "loss" and not training.decode_examples:
            return f"training.metric = '{training.metric}' needs translations; set training.decode_examples above 0"
        return None

    def tokenizer_defaults(self, given: Table) -> Table:
        return {} if self.data.images is None or "folder" in given else dict(IMAGE_TOKENIZER)

    def complete_data(self, model: Config, training: TrainingConfig, where: str) -> TranslationConfig:
        images = self.data.images
        if (training.guided_alignment or training.recombination) and images is None:
            return self.data if self.data.has_alignments else self.data.but(align=True)
        if images is None or images.size is not None:
            return self.data
        return self.data.but(images={**images.model_dump(), "size": outline(model, VocabularySizes(1, 1)).image_size})

    def _image_mismatch(self, model: Config, tokenizer: TokenizerConfig) -> str | None:
        """Return why images cannot be used with these settings."""
        if self.data.images is None:
            return None
        side, size = outline(model, VocabularySizes(1, 1)).image_size, self.data.images.size
        if side is None:
            name = catalog.name_of(model)
            return f"data.images is for a model that reads images, not for {name}; set model.preset = 'captioner_small'"
        if size != side:
            return f"data.images.size = {size} differs from model.side = {side}; leave out data.images.size"
        if tokenizer.folder is None and (tokenizer.joint or tokenizer.kinds[0] != "character"):
            return "images need tokenizer.joint = false and tokenizer.source_kind = 'character', a token per pixel"
        return None

    def _guided_mismatch(self, training: TrainingConfig) -> str | None:
        """Return why attention cannot be guided with these settings."""
        if self.data.images is not None:
            return "needs words on both sides, and the sources are images; leave it out"
        if training.bpe_dropout:
            return "needs the tokens that were aligned, which bpe_dropout changes; leave out one of them"
        if training.compile:
            return "records activations, which compiled blocks do not support; leave out compile"
        return None

    def _recombination_mismatch(self, training: TrainingConfig) -> str | None:
        """Return why pairs cannot be recombined with these settings."""
        if self.data.images is not None:
            return "needs words on both sides, and the sources are images; leave it out"
        if training.bpe_dropout:
            return "needs the tokens that were aligned, which bpe_dropout changes; leave out one of them"
        return None

    def choose_settings(self, given: Table, prepared: Prepared | None = None) -> Defaults:
        found = self._survey(prepared)
        if self.data.images is not None:
            return choose_captioner(found, self.data.images, given)
        held_out = self._held_out(prepared, found.pairs)
        fraction = held_out.tables.get("data", {}).get("validation_fraction", self.data.validation_fraction)
        aligned = prepared is None or prepared.report.alignment is not None
        chosen = choose_settings(found, given, self._validated(prepared, found.pairs, fraction), aligned)
        return Defaults({**held_out.tables, **chosen.tables}, [*chosen.reasons, *held_out.reasons])

    def _held_out(self, prepared: Prepared | None, pairs: int) -> Defaults:
        """Choose what is held out, unless it is given."""
        is_given = "validation_fraction" in self.data.model_fields_set or bool(self.data.of_split("validation"))
        return Defaults({}, []) if is_given or prepared is not None else choose_validation(pairs)

    def _validated(self, prepared: Prepared | None, pairs: int, fraction: float) -> int:
        """Return the number of validation pairs, counted up to what the defaults need to know."""
        if prepared is not None:
            return 0 if prepared.validation is None else len(prepared.validation)
        corpora = self.data.of_split("validation")
        if not corpora:
            return min(self.data.validation_max_size, round(fraction * pairs))
        if any(map(reads_once, corpora)):
            return 0
        languages = self.data.source_language, self.data.target_language
        return sum(1 for _ in islice(corpus_pairs(corpora, languages=languages), FEWEST_VALIDATED))

    def choose_tokenizer(self, given: Table) -> Defaults | None:
        if any(map(reads_once, self.data.corpora)):
            return None
        found, images = self._survey(None), self.data.images
        return choose_tokenizer(found, given) if images is None else choose_captioner(found, images, given)

    def choose_fine_tuning(
        self,
        checkpoint: InitialCheckpoint,
        given: Table,
        prepared: Prepared | None = None,
        before: Iterable[tuple[str, str]] | None = None,
    ) -> Defaults:
        found = self._survey(prepared)
        tokens = found.pairs * (found.target.characters / 4 + 1)
        chosen = choose_fine_tuning(checkpoint, f"{found.pairs:,} training pairs", tokens, given)
        pairs = self._pairs() if prepared is None else prepared.train_as(PairStore).texts()
        held_out = self._held_out(prepared, found.pairs)
        reasons = [*vocabulary_fit(checkpoint, pairs, before), *chosen.reasons, *held_out.reasons]
        return Defaults({**held_out.tables, **chosen.tables}, reasons)

    def languages_from(self, checkpoint: InitialCheckpoint) -> Table:
        pair = {"source_language": checkpoint.languages.source, "target_language": checkpoint.languages.target}
        return {name: language for name, language in pair.items() if language is not None}

    def _survey(self, prepared: Prepared | None) -> Survey:
        return (
            survey(self._pairs())
            if prepared is None
            else survey(prepared.train_as(PairStore).texts(), len(prepared.train))
        )

    def _pairs(self) -> Iterator[tuple[str, str]]:
        if any(map(reads_once, self.data.corpora)):
            raise SettingsError(READ_ONCE)
        languages = self.data.source_language, self.data.target_language
        pairs = corpus_pairs(self.data.corpora, languages=languages)  # images by their paths
        return ((pair.source, pair.target) for pair in pairs)

    preparation = PairPreparation

    def texts(self, prepared: Prepared) -> Iterator[tuple[str, str]]:
        return prepared.train_as(PairStore).texts()

    def batch_source(self, prepared: Prepared, config: TrainingConfig, model: Model) -> BatchSource:
        rewrite: Rewrite | None = None
        bucket_size = BUCKET_SIZE
        if config.bpe_dropout:
            limits = (model.max_source, model.max_target)
            rewrite, bucket_size = BpeDropoutRows(prepared, config, limits), REWRITTEN_POOL_SIZE
        if config.recombination:
            tags = (0, 0) if prepared.report.tags is None else prepared.report.tags.lengths
            rewrite = Recombination(prepared.train_as(PairStore), config.recombination, config.seed, tags)
            bucket_size = REWRITTEN_POOL_SIZE
        collate = partial(self.collate, prepared)
        if config.guided_alignment:
            collate = partial(self._guided, prepared, config.guided_alignment)
        return BatchSource(prepared.train, collate, config, model.device, rewrite, bucket_size)

    def _guided(self, prepared: Prepared, weight: float, split: PairStore, rows: Rows) -> PairBatch:
        assert split.alignments is not None, "checked when the run was set up"
        return with_guide(self.collate(prepared, split, rows), split.alignments, weight)

    def validator(self, prepared: Prepared, split: Any, config: TrainingConfig, workers: Workers) -> Validator:
        predict = GreedyTranslations(prepared, split, config)
        return Validator(split, partial(self.collate, prepared), self.loss, config, workers, predict)

    def tune_search(
        self, search: SearchOptions, prepared: Prepared, config: TrainingConfig, workers: Workers
    ) -> tuple[SearchOptions, str] | None:
        found = tune_search(search, prepared, config, workers, workers.models[0].width)
        return None if found is None else (found.options, str(found))

    def notes(self, search: SearchOptions, prepared: Prepared) -> Table:
        notes = {
            "source_language": self.data.source_language,
            "target_language": self.data.target_language,
            **super().notes(search, prepared),
            "metrics": list(surveyed_metrics(prepared)),
        }
        tags, images = prepared.report.tags, self.data.images
        notes |= {} if images is None else {"images": images.notes()}
        return notes if tags is None else {**notes, "tags": tags.to_table()}

    def card(self, contents: ModelFolder, prepared: Prepared) -> CardText:
        source, target = contents.notes.get("source_language"), contents.notes.get("target_language")
        sizes = contents.model.sizes
        return CardText(
            title=f"{catalog.name_of(contents.config)}, {source or 'source'} → {target or 'target'}",
            tags="translation, sequence-to-sequence",
            languages=[source, target],
            vocabulary=f"{sizes.source:,} source and {sizes.target:,} target tokens",
            rows="pairs",
            units="pairs",
            use="Translate with it: `transduce translate THIS_FOLDER`",
            call='transduce.load("THIS_FOLDER")("some text")',
        )


class SpanCorruptionTask(PlainTextTask[SpanCorruptionConfig]):
    """Pairs made of blocks of plain text: spans are replaced by sentinels and are the target (Raffel et al. 2020)."""

    name = "translation"
    fewest_positions = 4
    use = "Translate with it: `transduce translate THIS_FOLDER`"

    def choose_model(self, characters: int, reasons: list[str]) -> tuple[Table, float]:
        return choose_encoder_decoder(characters, reasons)

    def tokenizer_defaults(self, given: Table) -> Table:
        return {} if "folder" in given else {"sentinels": SENTINELS}

    def largest_block(self, model: Config) -> int | None:
        limit = position_limit(model)
        return None if limit is None else largest_corrupted(limit)

    def model_mismatch(self, model: Config) -> str | None:
        if catalog.is_language_model(model):
            return (
                f"data.objective = 'span_corruption' makes pairs, and a {catalog.name_of(model)} has no source; use t5"
            )
        return None

    def batch_source(self, prepared: Prepared, config: TrainingConfig, model: Model) -> BatchSource:
        corruption, train = self._corruption(prepared, config.seed), prepared.train_as(BlockStore)

        def corrupt(rows: Rows, epoch: int, start: int) -> PairStore:
            blocks = train.of_epoch(config.seed, epoch).blocks
            return PairStore.of(*corruption.pairs(blocks, rows, epoch, start))

        bucket_size = max(64, CORRUPTED_POOL_TOKENS // train.blocks.block)
        return BatchSource(train, partial(self.collate, prepared), config, model.device, corrupt, bucket_size)

    def validator(self, prepared: Prepared, split: Any, config: TrainingConfig, workers: Workers) -> Validator:
        """The spans are the same at every validation."""
        rows = np.arange(len(split), dtype=np.int64)
        pairs = self._corruption(prepared, config.seed).pairs(split.blocks, rows, "validation", 0)
        return Validator(PairStore.of(*pairs), partial(self.collate, prepared), self.loss, config, workers)

    def _corruption(self, prepared: Prepared, seed: int) -> Corruption:
        tokenizer = prepared.target_tokenizer
        return Corruption(tokenizer.sentinels, tokenizer.end, prepared.train_as(BlockStore).blocks.block, seed)


class BpeDropoutRows:
    """Tokenises the pairs of a pool anew in every epoch, from the text that is stored with the tokens."""

    def __init__(self, prepared: Prepared, config: TrainingConfig, limits: Limits) -> None:
        self.prepared, self.limits = prepared, limits
        tokenizers = (prepared.source_tokenizer, prepared.target_tokenizer)
        self._dropouts = [BpeDropout(tokenizer, config.bpe_dropout, config.seed) for tokenizer in tokenizers]

    def __call__(self, rows: Rows, epoch: int, start: int) -> PairStore:
        """Return the pairs of a pool; a side that becomes too long for the model keeps its stored tokens."""
        train = self.prepared.train_as(PairStore)
        texts = [train.text(int(row)) for row in rows]
        tags = self.prepared.report.tags
        leads = (0, 0) if tags is None else tags.lengths
        sides = []
        for side, (dropout, stored, limit, lead) in enumerate(
            zip(self._dropouts, train.pairs, self.limits, leads, strict=True)
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
        return PairStore.of(*sides)
