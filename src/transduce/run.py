"""Runs: execute a recipe in one folder. Prepare the corpus, train the model, save it with its card."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from transduce.config import Table, difference, merge, write_toml
from transduce.data.prepared import Prepared
from transduce.errors import MissingInput, ModelFolderError, SettingsError
from transduce.evaluation.metrics import select_metrics
from transduce.evaluation.significance import SAMPLES
from transduce.inference.generator import Generator
from transduce.inference.load import load, load_translator
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.model_folder import ModelFolder, save_model
from transduce.models import catalog
from transduce.models.interface import Model, VocabularySizes, move
from transduce.recipe import Recipe, fill_in, precision_note, read_recipe, resume_recipe
from transduce.storage.atomic import atomic_file
from transduce.storage.layout import DATA, MANIFEST, MODEL, RECIPE
from transduce.storage.manifest import sha256
from transduce.tasks.catalog import load_prepared, prepare, task_for
from transduce.tasks.text_encoding.evaluation import EncoderEvaluation, evaluate_encoder
from transduce.tasks.translation.evaluation import TranslationEvaluation, evaluate_translators, read_test_set
from transduce.training.checkpoint import SETTINGS, Checkpoints
from transduce.training.compatibility import (
    check_lengths,
    check_model_settings,
    check_model_size,
    check_validation_split,
    outline,
)
from transduce.training.distributed import Ranks, joined, shard, whole
from transduce.training.finish import model_card, put_final_weights
from transduce.training.initial_checkpoint import (
    folder_fingerprint,
    freeze,
    given_tokenizers,
    start_from_vectors,
    vectors_fingerprint,
)
from transduce.training.interruption import catch_signals
from transduce.training.memory import batch_for, fitting_micro_batch, keep_freed_memory
from transduce.training.reporter import Reporter, Silent
from transduce.training.run_folder import empty_on_error, locked_run, restore_on_error
from transduce.training.step import TrainStep
from transduce.training.trainer import Trainer

Progress = Callable[[str, int], None]
"""Called with a stage of the preparation and a count."""


def train(
    recipe: Recipe | Path | str,
    output: Path | str,
    *,
    resume: bool = False,
    finish: bool = False,
    prepared: Path | str | None = None,
    reporter: Reporter | None = None,
    progress: Progress | None = None,
) -> Path:
    """Train by a recipe in a run folder and return the folder; `transduce.load` then loads the model.

    `prepared` is a folder of `transduce prepare`, used instead of preparing the recipe's corpora. With `resume` a
    stopped run continues from its newest intact checkpoint, to the same result as if it had never been stopped (its
    recipe may have more updates than before, nothing else may differ). With `finish` too, it is not trained further:
    its best checkpoint, or the average that the recipe requests, becomes the model. It can be resumed afterwards.
    """
    if not isinstance(recipe, Recipe):
        recipe, _ = read_recipe(Path(recipe), prepared=None if prepared is None else load_prepared(Path(prepared)))
    folder, reporter = Path(output), reporter or Silent()
    note = None if resume else precision_note(recipe)
    recipe = _resumed_recipe(recipe, folder) if resume else fill_in(recipe)
    with joined(recipe.training.device) as ranks, _restored_torch_state():
        if recipe.training.shard and ranks.world == 1:
            raise SettingsError(
                "training.shard needs several processes; start them with "
                "`torchrun --nproc_per_node=N -m transduce train …`, or set it to false"
            )
        if ranks.restarted and (folder / RECIPE).is_file():
            recipe, resume = fill_in(resume_recipe(folder)), True
        if not ranks.leads:
            reporter = Silent()
        if note is not None and not resume:
            reporter.warn(note)
        with locked_run(folder, resume) if ranks.leads else contextlib.nullcontext():
            setup = _Setup(recipe, folder, resume, None if prepared is None else Path(prepared), ranks, reporter)
            with restore_on_error(folder / RECIPE) if resume and ranks.leads else contextlib.nullcontext():
                trainer = setup.trainer(progress)
                recipe = recipe.with_labels(trainer.prepared)
                with trainer.closed_on_error():
                    _check_unchanged(trainer, recipe)
                    trainer.resume(reporter)
            try:
                _train_or_finish(trainer, folder, finish, reporter)
                with whole(trainer.model):
                    if ranks.leads:
                        _save_model(trainer, recipe, folder, reporter)
                    ranks.wait()
            finally:
                trainer.close()
    reporter.end(str(folder))
    return folder


def fine_tune(
    model: Path | str,
    corpus: Path | str | Mapping[str, Any],
    output: Path | str,
    *,
    reporter: Reporter | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Path:
    """Train a model further on another corpus and return the run folder.

    `model` is a run or model folder; `corpus` a recipe file, or the table [data] of one, such as
    `{"train": {"source": "new.de", "target": "new.en"}}`; `settings` are settings of [training]. Those that are not
    given are chosen for fine-tuning.
    """
    base: Table = {"training": {**settings, "initial_checkpoint": str(model)}}
    path = None if isinstance(corpus, Mapping) else Path(corpus)
    recipe, _ = read_recipe(path, base=base | ({"data": dict(corpus)} if isinstance(corpus, Mapping) else {}))
    return train(recipe, output, reporter=reporter, progress=progress)


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation."""

    metrics: Sequence[str] = ()
    """Names of metrics; default: bleu, chrf and exact_match, or those of the text encoder's objective."""
    tokenize: str = "13a"
    """sacreBLEU's tokenizer for BLEU, or none."""
    lowercase: bool = False
    """Whether BLEU and chrF ignore case."""
    samples: int = SAMPLES
    """Bootstrap samples of the confidence intervals and the paired test."""
    columns: Table = field(default_factory=dict)
    """Columns of a text encoder's examples: `text`, `second_text`, `label`; settings of `ExampleFiles`."""
    target_language: str | None = None
    """Target language of a multilingual model."""
    source_language: str | None = None
    """Source language of a multilingual model that needs it."""
    image_folder: Path | str | None = None
    """Where the relative paths of a captioner's images start; default: the folder of the file that lists them."""
    device: str = "cpu"
    name: str | None = None
    """Name of a loaded model in messages and results; default: its folder, if it was given as one."""


def evaluate(
    model: Translator | Generator | TextEncoder | Path | str,
    *,
    source: str | None = None,
    target: str | Sequence[str] = (),
    path: str | None = None,
    against: Path | str | None = None,
    options: EvaluationOptions | None = None,
    **search: Any,
) -> TranslationEvaluation | EncoderEvaluation:
    """Evaluate a model on a test set; `lines()` are what `transduce evaluate` prints, `to_json()` is its JSON.

    `model` is a run or model folder, or what `transduce.load` returned. A translation model needs `source` and
    `target` files (several targets are several references), or `path` with both; `against` is another model to compare
    with, and `search` are search options such as `beam_size`. A text encoder needs `path`, a file of labelled examples.
    """
    options = options or EvaluationOptions()
    loaded, name = (load(model), str(model)) if isinstance(model, Path | str) else (model, options.name or "model")
    if isinstance(loaded, TextEncoder):
        if path is None or source is not None or target or against is not None:
            raise SettingsError(f"{name}: is a text encoder; give a file of labelled examples with path, nothing else")
        move(loaded.model, options.device)
        return evaluate_encoder(loaded, path, options.columns, options.metrics, options.samples)
    first = loaded if isinstance(loaded, Translator) else load_translator(name)
    models = [(name, first), *([] if against is None else [(str(against), load_translator(against))])]
    test = read_test_set(source, [target] if isinstance(target, str) else target, path)
    metrics = options.metrics or ("bleu", "chrf", "exact_match")
    chosen = select_metrics(metrics, options.tokenize, options.lowercase)
    for _, translator in models:
        move(translator.model, options.device)
        translator.read_images_from(options.image_folder, path or source)
        translator.languages.select(options.target_language, options.source_language)
    return evaluate_translators(models, test, chosen, options.samples, search)


def _train_or_finish(trainer: Trainer, folder: Path, finish: bool, reporter: Reporter) -> None:
    if not finish:
        with catch_signals(str(folder)) as interruption, trainer.ranks.monitored():
            interruption.patient = trainer.ranks.world > 1
            trainer.run(reporter, interruption)
    elif trainer.checkpoints.latest() is None:
        raise SettingsError(f"{folder}: has no checkpoint to make a model of; continue with --resume {folder}")
    elif trainer.is_over():
        trainer.journal.time("ended", update=trainer.progress.update)


@contextlib.contextmanager
def _restored_torch_state() -> Iterator[None]:
    """Restore torch's global random state and number of threads afterwards."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            torch.set_num_threads(threads)


class _Setup:
    """Sets up a run: saves the recipe, prepares the corpus, builds the model."""

    def __init__(
        self, recipe: Recipe, folder: Path, resume: bool, prepared: Path | None, ranks: Ranks, reporter: Reporter
    ) -> None:
        self.recipe, self.folder, self.resume, self.prepared = recipe, folder, resume, prepared
        self.ranks, self.reporter = ranks, reporter

    def trainer(self, progress: Progress | None) -> Trainer:
        """Return the trainer; a new run that cannot be set up leaves an empty folder."""
        if not self.ranks.leads:
            self.ranks.wait()  # until the leader has prepared
            self.recipe = resume_recipe(self.folder)
            return self._trainer(self._open_corpus())
        with contextlib.nullcontext() if self.resume else empty_on_error(self.folder):
            recipe, training = self.recipe, self.recipe.training
            if not self.resume or resume_recipe(self.folder).training.updates != training.updates:
                _write_recipe(recipe, self.folder)
            bare = recipe.task.without_labels(recipe.model)
            check_model_size(outline(bare, VocabularySizes(1, 1)), training)  # before the corpus is prepared
            if not self.resume:  # a run that was started with such settings may be completed with them
                check_model_settings(recipe.data, bare, training, recipe.search)
            corpus = self._corpus(progress)
            if not self.resume:
                check_validation_split(training, corpus)
            if training.patience and corpus.validation is None:
                self.reporter.warn("training.patience has no effect without validation data")
            self.recipe = recipe.with_labels(corpus)
            if training.batch_tokens == "auto":
                self.recipe = self._sized(corpus)
            if self.recipe != recipe:
                _write_recipe(self.recipe, self.folder)
            self.ranks.wait()
            return self._trainer(corpus)

    def _corpus(self, progress: Progress | None) -> Prepared:
        place, recipe = self.folder / DATA, self.recipe
        if place.is_symlink() and not place.exists():
            raise MissingInput(
                f"{self.folder}: its corpus was prepared in {place.readlink()}, which is missing; restore that folder"
            )
        if not place.exists():
            if self.prepared is None:
                prepare(recipe.data, recipe.tokenizer, place, progress, given_tokenizers(recipe.tokenizer))
            else:
                found = load_prepared(self.prepared)
                _check_preparation(found, recipe)
                place.symlink_to(found.folder.resolve())
        return self._open_corpus()

    def _open_corpus(self) -> Prepared:
        return load_prepared(self.folder / DATA, block_size=getattr(self.recipe.data, "block_size", None))

    def _sized(self, corpus: Prepared) -> Recipe:
        """Choose the batch size by the corpus, and the micro-batch size by the free memory."""
        recipe, train = self.recipe, corpus.report.train
        tokens = batch_for(train.target.tokens + train.kept)
        keep_freed_memory()
        size = min(recipe.training.micro_batch_size, tokens * recipe.training.gradient_accumulation // 2)
        trial = recipe.but_training(batch_tokens=tokens, micro_batch_tokens=size)
        train_step = TrainStep(_build(trial, corpus, Silent(), begun=True), trial.task.loss, trial.training)
        try:
            size = fitting_micro_batch(train_step, partial(trial.task.largest_batch, corpus), size)
        finally:
            train_step.workers.close()
        self.reporter.warn(
            f"chosen for this corpus and memory: batches of {tokens:,} tokens, micro-batches of {size:,}"
        )
        return trial.but_training(micro_batch_tokens=size)

    def _trainer(self, corpus: Prepared) -> Trainer:
        fingerprint, training = _fingerprint(self.recipe, corpus, self.ranks), self.recipe.training
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
        model = _build(self.recipe, corpus, self.reporter, begun=found is not None)
        return Trainer(model, self.recipe.task, corpus, training, self.folder, fingerprint, self.ranks)


def _write_recipe(recipe: Recipe, folder: Path) -> None:
    with atomic_file(folder / RECIPE) as temporary:
        temporary.write_text(recipe.to_toml(), encoding="utf-8")


def _build(recipe: Recipe, corpus: Prepared, reporter: Reporter, begun: bool = False) -> Model:
    """Build the model with its initial weights: random, from an initial checkpoint, or with word vectors.

    If the run has `begun`, initial weights are not loaded: those of a checkpoint replace them.
    """
    torch.set_num_threads(1)  # micro-batches run in parallel instead, see training.workers
    source, target, training = corpus.source_tokenizer, corpus.target_tokenizer, recipe.training
    sizes = VocabularySizes(source.size, target.size)
    check_model_size(outline(recipe.model, sizes), training)
    model = catalog.build(recipe.model, sizes, training.seed)
    check_lengths(model, corpus)
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


def _fingerprint(recipe: Recipe, corpus: Prepared, ranks: Ranks) -> Table:
    """Return all that the weights depend on; sharding is left out, so that a resumed run may change it."""
    tables = recipe.to_tables()
    del tables["training"]["shard"]
    return {
        "recipe": hashlib.sha256(write_toml(tables).encode()).hexdigest(),
        "data": sha256(corpus.folder / MANIFEST),
        "seed": recipe.training.seed,
        "threads": recipe.training.threads,
        "ranks": ranks.world,
        "torch": torch.__version__,
        SETTINGS: tables,
    }


def _resumed_recipe(recipe: Recipe, folder: Path) -> Recipe:
    """Fill in the recipe of a resumed run; it must be the one that the run was started with, but for more updates."""
    begun = fill_in(resume_recipe(folder))
    if recipe.training.batch_tokens == "auto":  # as chosen then
        size = recipe.training.micro_batch_tokens or begun.training.micro_batch_tokens
        recipe = recipe.but_training(batch_tokens=begun.training.batch_tokens, micro_batch_tokens=size)
    if recipe.training.precision == "auto":  # as chosen on the machine that started it
        recipe = recipe.but_training(precision=begun.training.precision)
    if isinstance(recipe.training.warmup, float):  # a fraction of the updates that it was started with
        recipe = recipe.but_training(warmup=begun.training.warmup)
    recipe = fill_in(recipe)
    if begun.but_training(updates=recipe.training.updates).without_labels() != recipe.without_labels():
        raise SettingsError(f"{folder}: was started with another recipe; a resumed run keeps its own")
    if recipe.training.updates < begun.training.updates:
        raise SettingsError(
            f"{folder}: is a run of {begun.training.updates:,} updates, which can be extended but not shortened; to "
            f"end it earlier, stop it and make its model with `transduce train --finish {folder}`"
        )
    return recipe


def _check_preparation(corpus: Prepared, recipe: Recipe) -> None:
    """Raise if a corpus was prepared with other settings than the recipe's."""
    settings = (task_for(corpus.data).preparation_settings(), corpus.tokenizer)
    if settings != (recipe.task.preparation_settings(), recipe.tokenizer):
        raise SettingsError(
            f"{corpus.folder}: was prepared with other settings of [data] or [tokenizer] than the recipe's; "
            "leave these tables out, or prepare again"
        )


def _check_unchanged(trainer: Trainer, recipe: Recipe) -> None:
    """Raise if a checkpoint was saved, or the corpus prepared, with anything else than this run has."""
    found = trainer.checkpoints.latest()
    if found is None:
        _check_preparation(trainer.prepared, recipe)
        return
    before, now = trainer.checkpoints.fingerprint(found[0]), trainer.fingerprint
    settings = before.get(SETTINGS)
    if settings is not None:  # a run may be extended
        settings = merge(settings, {"training": {"updates": recipe.training.updates}})
    for name in now:
        is_newer = name.endswith("_vectors") and name not in before  # than this checkpoint, which does not have it
        if name in ("ranks", SETTINGS) or before.get(name) == now[name] or is_newer:
            continue
        setting, old, new = name, before.get(name), now[name]
        if name == "recipe" and settings is not None:
            changed = difference(settings, now[SETTINGS])
            if changed is None:
                continue
            setting, old, new = changed
        raise ModelFolderError(
            f"{trainer.checkpoints.path(found[0])}: was saved with {setting} {_shown(old)}, now it is {_shown(new)}; "
            "change it back, or start a new run in another folder"
        )


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)[:80]


def _save_model(trainer: Trainer, recipe: Recipe, folder: Path, reporter: Reporter) -> None:
    """Save the model folder, with its card."""
    updates, final = put_final_weights(trainer, reporter)
    corpus, task = trainer.prepared, recipe.task
    notes = task.notes(recipe.search, corpus)
    contents = ModelFolder(trainer.model, recipe.model, corpus.source_tokenizer, corpus.target_tokenizer, notes)
    text, before = task.card(contents, corpus), trainer.progress.before
    card = model_card(contents, text, corpus, recipe.training, updates, final, trainer.fingerprint, before)
    save_model(folder / MODEL, contents, card)
    if final is not None:
        trainer.journal.write("final", updates=updates, **final.measures())
