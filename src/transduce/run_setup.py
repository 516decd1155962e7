"""Setting up a run: the recipe saved, the corpus prepared, the model built, the length of the run computed."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from transduce.config import Table, write_toml
from transduce.data.prepared import Prepared
from transduce.errors import MissingInput, SettingsError
from transduce.models import catalog
from transduce.models.guided_alignment import default_alignment_head
from transduce.models.interface import Model, VocabularySizes
from transduce.recipe import Recipe, resume_recipe
from transduce.storage.atomic import atomic_file
from transduce.storage.layout import DATA, MANIFEST, RECIPE
from transduce.storage.manifest import sha256
from transduce.tasks.catalog import load_prepared, prepare, task_for
from transduce.training.budget import Speed, measure_speed
from transduce.training.checkpoint import SETTINGS, Checkpoints
from transduce.training.compatibility import (
    NEED_ALIGNMENTS,
    check_alignments,
    check_lengths,
    check_model_settings,
    check_model_size,
    check_validation_split,
    outline,
)
from transduce.training.distributed import Ranks, shard
from transduce.training.initial_checkpoint import (
    folder_fingerprint,
    freeze,
    given_tokenizers,
    start_from_vectors,
    vectors_fingerprint,
)
from transduce.training.memory import batch_for, fitting_micro_batch, keep_freed_memory
from transduce.training.reporter import Reporter, Silent
from transduce.training.run_folder import empty_on_error
from transduce.training.step import TrainStep
from transduce.training.task import BatchSource
from transduce.training.trainer import Trainer


@dataclass(frozen=True)
class RunOptions:
    """How a recipe is carried out."""

    folder: Path
    resume: bool = False
    """Whether the folder holds a run that continues."""
    finish: bool = False
    """Whether the checkpoints so far become the model, without further training."""
    prepared: Path | None = None
    """A prepared corpus, used instead of preparing the recipe's."""


class RunSetup:
    """Sets up a run: saves the recipe, prepares the corpus, builds the model."""

    def __init__(self, recipe: Recipe, options: RunOptions, ranks: Ranks, reporter: Reporter) -> None:
        self.recipe, self.folder, self.resume, self.prepared = recipe, options.folder, options.resume, options.prepared
        self.ranks, self.reporter, self.began = ranks, reporter, time.monotonic()

    def trainer(self) -> Trainer:
        """Return the trainer; a new run that cannot be set up leaves an empty folder."""
        if not self.ranks.leads:
            self.ranks.wait()  # until the leader has prepared
            self.recipe = resume_recipe(self.folder)
            return self._trainer(self._open_corpus())
        with contextlib.nullcontext() if self.resume else empty_on_error(self.folder):
            recipe, training = self.recipe, self.recipe.training
            if not self.resume or resume_recipe(self.folder).training.updates != training.updates:
                write_recipe(recipe, self.folder)
            bare = recipe.task.without_labels(recipe.model)
            check_model_size(outline(bare, VocabularySizes(1, 1)), training)  # before the corpus is prepared
            if not self.resume:  # a run that was started with such settings may be completed with them
                check_model_settings(recipe.data, bare, training, recipe.search)
            corpus = self._corpus()
            if not self.resume:
                check_validation_split(training, corpus)
            if corpus.report.alignment is not None and not any(getattr(training, name) for name in NEED_ALIGNMENTS):
                self.reporter.warn(
                    "the alignments of the corpus are not used; training.guided_alignment = 0.05 uses them"
                )
            if training.patience and corpus.validation is None:
                self.reporter.warn("training.patience has no effect without validation data")
            self.recipe = recipe.with_labels(corpus)
            if training.batch_tokens == "auto":
                self.recipe = self._sized(corpus)
            if not training.is_planned:
                self.recipe = self._planned(corpus)
            if self.recipe != recipe:
                write_recipe(self.recipe, self.folder)
            self.ranks.wait()
            return self._trainer(corpus)

    def _corpus(self) -> Prepared:
        place, recipe = self.folder / DATA, self.recipe
        if place.is_symlink() and not place.exists():
            raise MissingInput(
                f"{self.folder}: its corpus was prepared in {place.readlink()}, which is missing; restore that folder"
            )
        if not place.exists():
            if self.prepared is None:
                prepare(
                    recipe.data, recipe.tokenizer, place, self.reporter.preparing, given_tokenizers(recipe.tokenizer)
                )
                if (unused := self._open_corpus().report.unused()) is not None:
                    self.reporter.warn(unused)
            else:
                found = load_prepared(self.prepared)
                check_preparation(found, recipe)
                place.symlink_to(found.folder.resolve())
        return self._open_corpus()

    def _open_corpus(self) -> Prepared:
        return load_prepared(self.folder / DATA, block_size=getattr(self.recipe.data, "block_size", None))

    def _sized(self, corpus: Prepared) -> Recipe:
        """Choose the batch size by the corpus, and the micro-batch size by the free memory."""
        recipe, train = self.recipe, corpus.report.train
        tokens = batch_for(train.target.tokens + train.kept)
        keep_freed_memory()
        share = 2 if recipe.training.device == "cpu" else 1  # see `default_micro_batch`
        size = min(recipe.training.micro_batch_size, tokens * recipe.training.gradient_accumulation // share)
        trial = recipe.but_training(batch_tokens=tokens, micro_batch_tokens=size)
        train_step = TrainStep(build_model(trial, corpus, Silent(), begun=True), trial.task.loss, trial.training)
        try:
            size = fitting_micro_batch(train_step, partial(trial.task.largest_batch, corpus), size)
        finally:
            train_step.workers.close()
        self.reporter.warn(
            f"chosen for this corpus and memory: batches of {tokens:,} tokens, micro-batches of {size:,}"
        )
        return trial.but_training(micro_batch_tokens=size)

    def _planned(self, corpus: Prepared) -> Recipe:
        """Turn epochs or a time budget into a number of updates, after trial updates of a model that is discarded."""
        recipe, training = self.recipe, self.recipe.training
        keep_freed_memory()
        sizes = VocabularySizes(corpus.source_tokenizer.size, corpus.target_tokenizer.size)
        alone = not training.shard  # else all ranks would have to take part
        model = build_model(recipe, corpus, Silent(), begun=True) if alone else outline(recipe.model, sizes)
        source = recipe.task.batch_source(corpus, training, model)
        per_epoch = max(1.0, source.batches.batches_in_epoch(0) / training.gradient_accumulation)
        speed = self._speed(TrainStep(model, recipe.task.loss, training), source, corpus) if alone else None
        if training.epochs is not None:
            planned = recipe.with_updates(max(1, round(training.epochs * per_epoch)))
        else:
            assert speed is not None, "checked by the settings"
            planned = recipe.with_updates(
                speed.updates_within(training, time.monotonic() - self.began, self.ranks.world)
            )
        updates = planned.training.updates
        took = "" if speed is None else f", {speed.duration(planned.training, self.ranks.world)} on this machine"
        self.reporter.warn(f"{updates:,} updates are {updates / per_epoch:,.1f} epochs{took}")
        return planned

    def _speed(self, train_step: TrainStep, source: BatchSource, corpus: Prepared) -> Speed:
        validator = None
        if corpus.validation is not None:
            task, training = self.recipe.task, self.recipe.training
            validator = task.validator(corpus, corpus.validation, training, train_step.workers)
        return measure_speed(train_step, source, validator)

    def _trainer(self, corpus: Prepared) -> Trainer:
        fingerprint, training = run_fingerprint(self.recipe, corpus, self.ranks), self.recipe.training
        checkpoints = Checkpoints(self.folder)
        found = checkpoints.latest()
        needed = {"initial_checkpoint": training.initial_checkpoint}  # at the beginning only
        needed |= {"source_vectors": training.source_vectors, "target_vectors": training.target_vectors}
        for name, path in needed.items():
            if path is not None and found is not None and not Path(path).exists():
                fingerprint[name] = checkpoints.fingerprint(found[0]).get(name)
            elif path is not None:
                of = folder_fingerprint if name == "initial_checkpoint" else vectors_fingerprint
                fingerprint[name] = of(path)
        model = build_model(self.recipe, corpus, self.reporter, begun=found is not None)
        return Trainer(model, self.recipe.task, corpus, training, self.folder, fingerprint, self.ranks)


def write_recipe(recipe: Recipe, folder: Path) -> None:
    with atomic_file(folder / RECIPE) as temporary:
        temporary.write_text(recipe.to_toml(), encoding="utf-8")


def build_model(recipe: Recipe, corpus: Prepared, reporter: Reporter, begun: bool = False) -> Model:
    """Build the model with its initial weights: random, from an initial checkpoint, or with word vectors.

    If the run has `begun`, initial weights are not loaded: those of a checkpoint replace them.
    """
    torch.set_num_threads(1)  # micro-batches run in parallel instead, see training.workers
    source, target, training = corpus.source_tokenizer, corpus.target_tokenizer, recipe.training
    sizes = VocabularySizes(source.size, target.size)
    check_model_size(outline(recipe.model, sizes), training)
    model = catalog.build(recipe.model, sizes, training.seed)
    check_lengths(model, corpus)
    check_alignments(training, corpus)
    if training.guided_alignment:
        model.alignment_heads = (default_alignment_head(model),)
    if training.initial_checkpoint is not None and not begun:
        reporter.warn(recipe.task.initialize(model, Path(training.initial_checkpoint), source, target))
    sides = (("source", training.source_vectors, source), ("target", training.target_vectors, target))
    for side, path, tokenizer in sides:
        if path is None:
            continue
        embedding = getattr(model, f"{side}_embedding")
        embedding.weight.requires_grad_(not training.freeze_vectors)
        if not begun:
            known = start_from_vectors(embedding, tokenizer, path)
            reporter.warn(f"{path}: has vectors for {known:,} of {tokenizer.size:,} {side} tokens")
    if training.freeze:
        frozen = freeze(model, training.freeze)
        count = sum(weight.numel() for weight in model.parameters() if not weight.requires_grad)
        reporter.warn(f"{count:,} parameters in {len(frozen):,} weights are frozen")
    return shard(model, training.device) if training.shard else model.to(training.device)


def settings_of(recipe: Recipe) -> Table:
    """Return the settings that the weights depend on; sharding is left out, so that a resumed run may change it."""
    tables = recipe.to_tables()
    del tables["training"]["shard"]
    return tables


def run_fingerprint(recipe: Recipe, corpus: Prepared, ranks: Ranks) -> Table:
    """Return all that the weights depend on."""
    tables = settings_of(recipe)
    return {
        "recipe": hashlib.sha256(write_toml(tables).encode()).hexdigest(),
        "data": sha256(corpus.folder / MANIFEST),
        "seed": recipe.training.seed,
        "threads": recipe.training.threads,
        "ranks": ranks.world,
        "torch": torch.__version__,
        SETTINGS: tables,
    }


def check_preparation(corpus: Prepared, recipe: Recipe) -> None:
    """Raise if a corpus was prepared with other settings than the recipe's."""
    check_alignments(recipe.training, corpus)
    settings = (task_for(corpus.data).preparation_settings(), corpus.tokenizer)
    if settings != (recipe.task.preparation_settings(), recipe.tokenizer):
        raise SettingsError(
            f"{corpus.folder}: was prepared with other settings of [data] or [tokenizer] than the recipe's; "
            "leave these tables out, or prepare again"
        )
