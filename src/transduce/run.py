"""A recipe carried out: corpus prepared, model built, trained, and kept with its card in one folder."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transduce.config import Table, difference, merge, write_toml
from transduce.data.config import DataConfig, PlainTextConfig
from transduce.data.prepared import Prepared
from transduce.errors import MissingInput, ModelFolderError, SettingsError
from transduce.model_folder import ModelFolder, save_model
from transduce.models import catalog
from transduce.models.interface import Model, VocabularySizes
from transduce.recipe import Recipe, fill_in, read_recipe, resume_recipe
from transduce.storage.atomic import atomic_file
from transduce.storage.layout import DATA, MANIFEST, MODEL, RECIPE
from transduce.storage.manifest import sha256
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.initial_checkpoint import fingerprint, given_tokenizers
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.text.encoder_input import label_tokens
from transduce.training.checkpoint import SETTINGS, Checkpoints
from transduce.training.compatibility import outline, refuse_too_large, refuse_too_long, refuse_unfit, refuse_unmeasured
from transduce.training.distributed.ranks import Ranks, joined
from transduce.training.distributed.sharding import shard, whole
from transduce.training.finish import put_final_weights
from transduce.training.initial_weights import begin, freeze, start_from_vectors, vectors_fingerprint
from transduce.training.interruption import listening
from transduce.training.memory_estimate import batch_for, fitting_micro_batch
from transduce.training.model_card import model_card
from transduce.training.reporter import Reporter, Silent
from transduce.training.run_folder import empty_on_error, locked_run, restore_on_error
from transduce.training.step import Updater
from transduce.training.system_memory import keep_freed_memory
from transduce.training.trainer import Trainer


def train(
    recipe: Recipe | Path | str,
    output: Path | str,
    *,
    resume: bool = False,
    finish: bool = False,
    prepared: Path | str | None = None,
    reporter: Reporter | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Path:
    """Carry out a recipe in a run folder and return the folder; `transduce.load` then gives the translator.

    `prepared` is a folder that `transduce prepare` wrote, used instead of preparing the recipe's corpora. With
    `resume` a run that was stopped goes on from its newest whole checkpoint, to the same result as if it never had
    (its recipe may ask for more updates than before, for nothing else);
    with `finish` besides, it learns no more, and its checkpoints become the model: the best, or the average that the
    recipe asks for. It can be resumed afterwards all the same.
    """
    if not isinstance(recipe, Recipe):
        recipe, _ = read_recipe(Path(recipe), prepared=None if prepared is None else load_prepared(Path(prepared)))
    folder, reporter = Path(output), reporter or Silent()
    recipe = _as_begun(recipe, folder) if resume else fill_in(recipe)
    with joined(recipe.training.device) as ranks, _as_found():
        if recipe.training.shard and ranks.world == 1:
            raise SettingsError(
                "training.shard: there is one process only, and nothing to spread the model over; start several with "
                "`torchrun --nproc_per_node=N -m transduce train …`, or set it to false"
            )
        if ranks.restarted and (folder / RECIPE).is_file():
            recipe, resume = fill_in(resume_recipe(folder)), True
        if not ranks.leads:
            reporter = Silent()
        with locked_run(folder, resume) if ranks.leads else contextlib.nullcontext():
            given = None if prepared is None else Path(prepared)
            with restore_on_error(folder / RECIPE) if resume and ranks.leads else contextlib.nullcontext():
                trainer = _set_up(recipe, folder, resume, given, ranks, reporter, progress)
                recipe = with_labels(recipe, trainer.prepared)
                with trainer.closed_on_error():
                    _refuse_changes(trainer, recipe)
                    trainer.resume(reporter)
            try:
                if not finish:
                    with listening(str(folder)) as interruption, ranks.listening():
                        interruption.patient = ranks.world > 1
                        trainer.run(reporter, interruption)
                elif trainer.checkpoints.latest() is None:
                    raise SettingsError(f"{folder}: has no checkpoint to make a model of; go on with --resume {folder}")
                elif trainer.is_over():
                    trainer.journal.time("ended", update=trainer.progress.update)
                with whole(trainer.model):
                    if ranks.leads:
                        _finish(trainer, recipe, folder, reporter)
                    ranks.wait()
            finally:
                trainer.close()
    reporter.end(str(folder))
    return folder


@contextlib.contextmanager
def _as_found() -> Iterator[None]:
    """Leave the process's own random numbers and number of threads as they were found."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _set_up(
    recipe: Recipe,
    folder: Path,
    resume: bool,
    prepared: Path | None,
    ranks: Ranks,
    reporter: Reporter,
    progress: Callable[[str, int], None] | None,
) -> Trainer:
    """Make all that training needs; a new run for which that fails leaves nothing behind."""
    if not ranks.leads:
        ranks.wait()  # until the leader has prepared
        recipe = resume_recipe(folder)
        return _trainer(
            recipe, load_prepared(folder / DATA, block_size=_block_size(recipe.data)), folder, ranks, reporter
        )
    with contextlib.nullcontext() if resume else empty_on_error(folder):
        if not resume or resume_recipe(folder).training.updates != recipe.training.updates:
            _write(recipe, folder)
        bare = without_labels(recipe)
        refuse_too_large(outline(bare.model, VocabularySizes(1, 1)), recipe.training)  # before hours go into preparing
        if not resume:  # a run that went on with it so far may end with it
            refuse_unfit(bare.data, bare.model, recipe.training, recipe.search)
        corpus = _corpus(folder, recipe, prepared, progress)
        if not resume:
            refuse_unmeasured(recipe.training, corpus)
        if recipe.training.patience and corpus.validation is None:
            reporter.warn("there are no validation pairs, so that training.patience ends nothing early")
        chosen = with_labels(recipe, corpus)
        if recipe.training.batch_tokens == "auto":
            chosen = _sized(chosen, corpus, reporter)
        if chosen != recipe:
            recipe = chosen
            _write(recipe, folder)
        ranks.wait()
        return _trainer(recipe, corpus, folder, ranks, reporter)


def _write(recipe: Recipe, folder: Path) -> None:
    with atomic_file(folder / RECIPE) as temporary:
        temporary.write_text(recipe.to_toml(), encoding="utf-8")


def _trainer(recipe: Recipe, corpus: Prepared, folder: Path, ranks: Ranks, reporter: Reporter) -> Trainer:
    mine, training = _fingerprint(recipe, corpus, ranks), recipe.training
    checkpoints = Checkpoints(folder)
    found = checkpoints.latest()
    needed = {"start": training.initial_checkpoint}  # for the beginning only
    needed |= {"source_vectors": training.source_vectors, "target_vectors": training.target_vectors}
    for name, path in needed.items():
        if path is not None and found is not None and not Path(path).exists():
            mine[name] = checkpoints.fingerprint(found[0]).get(name)
        elif path is not None:
            mine[name] = fingerprint(path) if name == "start" else vectors_fingerprint(path)
    model = _build(recipe, corpus, reporter, begun=found is not None)
    return Trainer(model, corpus, training, folder, mine, ranks)


def _sized(recipe: Recipe, corpus: Prepared, reporter: Reporter) -> Recipe:
    """Choose the size of a batch by the corpus, and of a slice by the memory that there is."""
    train = corpus.report.train
    tokens = batch_for(train.target.tokens + train.kept)
    keep_freed_memory()
    slices = min(recipe.training.micro_batch_size, tokens * recipe.training.gradient_accumulation // 2)
    trial = recipe.but_training(batch_tokens=tokens, micro_batch_tokens=slices, threads=recipe.training.threads)
    updater = Updater(_build(trial, corpus, Silent(), begun=True), trial.training)
    try:
        slices = fitting_micro_batch(updater, corpus, slices)
    finally:
        updater.workers.close()
    reporter.warn(f"batches of {tokens:,} tokens, computed in slices of {slices:,}, suit this corpus and this memory")
    return trial.but_training(micro_batch_tokens=slices)


def _corpus(
    folder: Path, recipe: Recipe, prepared: Path | None, progress: Callable[[str, int], None] | None
) -> Prepared:
    place = folder / DATA
    if place.is_symlink() and not place.exists():
        raise MissingInput(
            f"{folder}: its corpus was prepared in {place.readlink()}, where there is nothing now; put that folder back"
        )
    if not place.exists():
        if prepared is None:
            prepare(recipe.data, recipe.tokenizer, place, progress, given_tokenizers(recipe.tokenizer))
        else:
            found = load_prepared(prepared)
            _refuse_foreign_corpus(found, recipe)
            place.symlink_to(found.folder.resolve())
    return load_prepared(place, block_size=_block_size(recipe.data))


def _build(recipe: Recipe, corpus: Prepared, reporter: Reporter, begun: bool = False) -> Model:
    """Build the model with the weights that it begins with: drawn, or another folder's, or with vectors of a file.

    One that has begun already gets a checkpoint's weights, and needs none of these.
    """
    torch.set_num_threads(1)  # several slices side by side instead, see training.workers
    sizes = VocabularySizes(corpus.source_tokenizer.size, corpus.target_tokenizer.size)
    refuse_too_large(outline(recipe.model, sizes), recipe.training)
    model = catalog.build(recipe.model, sizes, recipe.training.seed)
    refuse_too_long(model, corpus)
    start = recipe.training.initial_checkpoint
    if start is not None and not begun:
        reporter.warn(begin(model, Path(start), corpus.source_tokenizer, corpus.target_tokenizer))
    sides = (
        ("source", recipe.training.source_vectors, corpus.source_tokenizer),
        ("target", recipe.training.target_vectors, corpus.target_tokenizer),
    )
    for side, path, tokenizer in sides:
        if path is None:
            continue
        embedding = getattr(model, f"{side}_embedding")
        embedding.weight.requires_grad_(not recipe.training.freeze_vectors)
        if not begun:
            known = start_from_vectors(embedding, tokenizer, path)
            reporter.warn(f"{path}: gave vectors to {known:,} of {tokenizer.size:,} {side} tokens")
    if recipe.training.freeze:
        still = freeze(model, recipe.training.freeze)
        count = sum(weight.numel() for weight in model.parameters() if not weight.requires_grad)
        reporter.warn(f"{count:,} parameters in {len(still):,} weights are held still")
    device = recipe.training.device
    return shard(model, device) if recipe.training.shard else model.to(device)


def with_labels(recipe: Recipe, corpus: Prepared) -> Recipe:
    """Give a reader's head as many labels as there are, and the words that they are where it answers in words."""
    if not catalog.is_text_encoder(recipe.model) or getattr(recipe.model, "head", None) not in ("labels", "tags"):
        return recipe
    labels = corpus.report.labels or ("",)
    words = {"label_tokens": label_tokens(corpus.source_tokenizer, labels)}
    named = words if catalog.answers_in_words(recipe.model) else {}
    return replace(recipe, model=recipe.model.but(num_labels=len(labels), **named))


def without_labels(recipe: Recipe) -> Recipe:
    """Forget the labels, which the data says: a recipe is the same before they are counted."""
    model = recipe.model
    if not catalog.is_text_encoder(model):
        return recipe
    named = {"label_tokens": ()} if catalog.answers_in_words(model) else {}
    return replace(recipe, model=model.but(num_labels=1, **named))


def model_notes(recipe: Recipe, corpus: Prepared) -> Table:
    """What a model folder says besides its settings."""
    if isinstance(recipe.data, TextEncodingConfig):
        data = recipe.data
        kept = {
            name: getattr(data, name) for name in ("objective", "language", "max_length", "stride", "allow_no_answer")
        }
        columns = data.of_split("train")[0].to_table()
        kept_names = ("text", "second_text", "label", *(["format"] if columns.get("format") == "babi" else []))
        columns = {name: columns[name] for name in kept_names if columns.get(name) is not None}
        return {**kept, "labels": list(corpus.report.labels or ()), "columns": columns}
    notes: Table = {
        "source_language": getattr(recipe.data, "source_language", None),
        "target_language": getattr(recipe.data, "target_language", None),
        "search": recipe.search.to_table(),
    }
    if corpus.report.tags is not None:
        notes["tags"] = corpus.report.tags.to_table()
    if isinstance(recipe.data, PlainTextConfig):
        notes |= {"document": recipe.data.corpora[0].document, "block_size": recipe.data.block_size}
    return notes


def _fingerprint(recipe: Recipe, corpus: Prepared, ranks: Ranks) -> Table:
    """What the weights depend on; not on whether they are spread over ranks, so that a run may change that."""
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


def _as_begun(recipe: Recipe, folder: Path) -> Recipe:
    """Fill in the recipe of a run that goes on; it must be the one that it was begun with, but for more updates."""
    begun = fill_in(resume_recipe(folder))
    if recipe.training.batch_tokens == "auto":  # what was chosen then
        slices = recipe.training.micro_batch_tokens or begun.training.micro_batch_tokens
        recipe = recipe.but_training(batch_tokens=begun.training.batch_tokens, micro_batch_tokens=slices)
    recipe = fill_in(recipe)
    if without_labels(begun.but_training(updates=recipe.training.updates)) != without_labels(recipe):
        raise SettingsError(f"{folder}: was started with another recipe; a resumed run keeps its own")
    if recipe.training.updates < begun.training.updates:
        raise SettingsError(
            f"{folder}: is a run of {begun.training.updates:,} updates, which can become longer but not shorter; to "
            f"end it earlier, stop it and make its model with `transduce train --finish {folder}`"
        )
    return recipe


def _refuse_foreign_corpus(corpus: Prepared, recipe: Recipe) -> None:
    if (_unblocked(corpus.data), corpus.tokenizer) != (_unblocked(recipe.data), recipe.tokenizer):
        raise SettingsError(
            f"{corpus.folder}: was prepared with other settings of [data] or [tokenizer] than the recipe's; "
            "leave these tables out, or prepare again"
        )


def _block_size(data: DataConfig) -> int | None:
    return data.block_size if isinstance(data, PlainTextConfig) else None


def _unblocked(data: DataConfig) -> DataConfig:
    """Leave out the block size of plain text, which the prepared files do not depend on."""
    return data.but(block_size=None) if isinstance(data, PlainTextConfig) else data


def _refuse_changes(trainer: Trainer, recipe: Recipe) -> None:
    """A checkpoint goes on only with what it was made with, and a corpus serves only the recipe it was prepared for."""
    found = trainer.checkpoints.latest()
    if found is None:
        _refuse_foreign_corpus(trainer.prepared, recipe)
        return
    before, now = trainer.checkpoints.fingerprint(found[0]), trainer.fingerprint
    settings = before.get(SETTINGS)
    if settings is not None:  # a run may become longer
        settings = merge(settings, {"training": {"updates": recipe.training.updates}})
    for name in now:
        is_newer = name.endswith("_vectors") and name not in before  # than this checkpoint, which does not say
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
            "put it back, or start a new run in another folder"
        )


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)[:80]


def _finish(trainer: Trainer, recipe: Recipe, folder: Path, reporter: Reporter) -> None:
    """Make the model folder, with the card."""
    updates, final = put_final_weights(trainer, reporter)
    corpus = trainer.prepared
    notes = model_notes(recipe, corpus)
    contents = ModelFolder(trainer.model, recipe.model, corpus.source_tokenizer, corpus.target_tokenizer, notes)
    card = model_card(contents, corpus, recipe.training, updates, final, trainer.fingerprint, trainer.progress.before)
    save_model(folder / MODEL, contents, card)
    if final is not None:
        trainer.journal.write("final", updates=updates, **final.measures())
