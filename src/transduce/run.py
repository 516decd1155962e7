"""Runs: execute a recipe in one folder. Prepare the corpus, train the model, save it with its card."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from transduce.config import Table, difference, merge
from transduce.errors import DataError, ModelFolderError, SettingsError, suggestion
from transduce.evaluation.metrics import select_metrics
from transduce.evaluation.significance import SAMPLES
from transduce.inference.generator import Generator
from transduce.inference.load import load, load_translator
from transduce.inference.search.options import OTHER_NAMES, SearchOptions
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.interop.pretrained import model_folder
from transduce.model_folder import ModelFolder, alignment_notes, save_model
from transduce.models.interface import move, unused_gpu_note
from transduce.recipe import Recipe, fill_in, precision_note, read_recipe, resume_recipe
from transduce.run_arguments import Arguments, Both, Texts
from transduce.run_setup import RunOptions, RunSetup, check_preparation, settings_of
from transduce.storage.layout import MODEL, RECIPE
from transduce.tasks.catalog import load_prepared
from transduce.tasks.text_encoding.evaluation import EncoderEvaluation, evaluate_encoder
from transduce.tasks.translation.evaluation import (
    TestSet,
    TranslationEvaluation,
    default_metrics,
    evaluate_translators,
    read_test_set,
)
from transduce.text.argument import checked_texts, is_several
from transduce.text.corpus import CorpusFiles
from transduce.training.callback import Callbacks, check_callbacks
from transduce.training.checkpoint import SETTINGS
from transduce.training.device import gpu_settings
from transduce.training.distributed import joined, leads, whole
from transduce.training.finish import model_card, put_final_weights, weights_from
from transduce.training.interruption import catch_signals
from transduce.training.notebook import NotebookProgress, in_notebook
from transduce.training.reporter import Reporter, Silent
from transduce.training.run_folder import locked_run, restore_on_error
from transduce.training.trainer import Trainer


def train(
    recipe: Recipe | Path | str | None = None,
    output: Path | str | None = None,
    *,
    source: Texts | None = None,
    target: Texts | None = None,
    path: Path | str | None = None,
    text: Texts | None = None,
    validation: Both | Texts | None = None,
    test: Both | Texts | None = None,
    callbacks: Sequence[Reporter] = (),
    resume: bool = False,
    finish: bool = False,
    prepared: Path | str | None = None,
    reporter: Reporter | None = None,
    **settings: Any,
) -> Path:
    """Train a model in the run folder `output` and return the folder; `transduce.load` then loads the model.

    The corpus is `source` and `target` (two files, or two lists of strings), `path` (one file with both sides: TSV,
    CSV, JSONL, TMX, XLIFF, PO; or labelled examples) or `text` (plain text, for a language model). `validation` and
    `test` are (source, target) or one such file; without validation data, a part of the corpus is held out. Everything
    else is chosen from the corpus, unless `settings` say otherwise: those of [training] by name (`epochs=3`,
    `learning_rate=1e-3`), `preset`, `source_language`, `target_language`, and other tables as dicts
    (`model={"num_layers": 4}`, `tokenizer={"kind": "bpe"}`). They may also complete a recipe file.

    `callbacks` follow the run and may end it (`transduce.Callback`); a notebook shows a progress bar unless `reporter`
    is given, which shows the run in its place. `prepared` is a folder of `transduce prepare`, used instead of preparing
    corpora. With `resume` a stopped run continues from its newest intact checkpoint, to the same result as if it had
    never been stopped (its recipe may have more updates than before, nothing else may differ). With `finish` too, it is
    not trained further: its best checkpoint, or the average that the recipe requests, becomes the model.
    """
    arguments = Arguments(Path(output or "."))
    arguments.add_settings(settings)
    if output is None:
        raise SettingsError("no run folder is given; pass output='runs/NAME'")
    arguments.add_corpora((source, target), path, text, validation=validation, test=test)
    options = RunOptions(Path(output), resume, finish, None if prepared is None else Path(prepared))
    followers = _followers(callbacks, reporter)
    with arguments.written():
        made, reasons = _recipe(recipe, arguments, options)
        for reason in reasons if leads() else ():
            followers.warn(f"chosen: {reason}")
        return _train(made, options, followers)


def _recipe(recipe: Recipe | Path | str | None, arguments: Arguments, options: RunOptions) -> tuple[Recipe, list[str]]:
    """Return the recipe that the arguments of `train` make, with the reasons for what was chosen."""
    if recipe is None and options.resume and not arguments.tables:
        return resume_recipe(arguments.folder), []
    if isinstance(recipe, Recipe) or options.resume:
        if arguments.tables:
            table, settings = next(iter(arguments.tables.items()))
            what = (
                "a resumed run keeps its own"
                if options.resume
                else "change it with recipe.but_training(…), or pass a file"
            )
            raise SettingsError(f"{table}.{next(iter(settings), '…')} cannot be added to a complete recipe; {what}")
        if isinstance(recipe, Recipe):
            return recipe, []
    if recipe is None and options.prepared is None and "train" not in arguments.tables.get("data", {}):
        raise SettingsError("no training corpus is given; pass source and target, path, text, prepared or a recipe")
    opened = None if options.prepared is None else load_prepared(options.prepared)
    path = None if recipe is None else Path(recipe)
    return read_recipe(path, base=arguments.tables, prepared=opened, given_by="transduce.train")


def _followers(callbacks: Sequence[Reporter], reporter: Reporter | None) -> Callbacks:
    """Return all that follow a run; in a notebook with a progress bar, if nothing else shows the run."""
    others = check_callbacks(callbacks)
    if reporter is None:
        reporter = NotebookProgress() if in_notebook() else Silent()
    return Callbacks([reporter, *others])


def _train(recipe: Recipe, options: RunOptions, followers: Callbacks) -> Path:
    folder, resume = options.folder, options.resume
    reporter: Reporter = followers
    notes = [] if resume else [precision_note(recipe), unused_gpu_note(recipe.training.device, "training.device =")]
    recipe = _resumed_recipe(recipe, folder) if resume else fill_in(recipe)
    with joined(recipe.training.device) as ranks, _restored_torch_state(), _gpu_of(recipe):
        if recipe.training.shard and ranks.world == 1:
            raise SettingsError(
                "training.shard needs several processes; start them with "
                "`torchrun --nproc_per_node=N -m transduce train …`, or set it to false"
            )
        if ranks.restarted and (folder / RECIPE).is_file():
            recipe, resume = fill_in(resume_recipe(folder)), True
        if not ranks.leads:
            reporter = Silent()
        for note in filter(None, () if resume else notes):
            reporter.warn(note)
        with locked_run(folder, resume) if ranks.leads else contextlib.nullcontext():
            setup = RunSetup(recipe, replace(options, resume=resume), ranks, reporter)
            with restore_on_error(folder / RECIPE) if resume and ranks.leads else contextlib.nullcontext():
                trainer = setup.trainer()
                recipe = setup.recipe.with_labels(trainer.prepared)
                with trainer.closed_on_error():
                    _check_unchanged(trainer, recipe)
                    trainer.resume(reporter)
            try:
                _train_or_finish(trainer, options, reporter, lambda: followers.stop_reason)
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
    corpus: Path | str | Mapping[str, Any] | None = None,
    output: Path | str | None = None,
    *,
    revision: str | None = None,
    **arguments: Any,
) -> Path:
    """Train a model further on another corpus, in the run folder `output`, and return the folder.

    `model` is a run or model folder, or the name of a model on the Hugging Face hub (`revision`: branch, tag or
    commit). `arguments` are those of `train`: the corpus (`source` and `target`, `path`, `text`), callbacks, settings.
    Instead, `corpus` may be a recipe file, or the table [data] of one, such as
    `{"train": {"source": "new.de", "target": "new.en"}}`. Training settings that are not given are chosen for
    fine-tuning.
    """
    if not isinstance(model, str | Path):
        raise TypeError(
            f"fine_tune takes the folder of a model or its name on the hub, not {type(model).__name__}; "
            "save it first: model.save(folder)"
        )
    folder = model_folder(model, revision)
    if folder is None:
        raise SettingsError(
            f"{model}: is not a model folder; import it first: transduce.import_model('{model}', FOLDER)"
        )
    if isinstance(corpus, Mapping):
        arguments["data"] = {**arguments.get("data", {}), **corpus}
        corpus = None
    return train(corpus, output, **arguments, initial_checkpoint=str(folder))


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation."""

    metrics: Sequence[str] = ()
    """Names of metrics; default: those that fit the corpus the model was trained on (for sentences bleu, chrf and
    exact_match), or those of the text encoder's objective."""
    tokenize: str = "13a"
    """sacreBLEU's tokenizer for BLEU, or none."""
    lowercase: bool = False
    """Whether BLEU and chrF ignore case."""
    samples: int = SAMPLES
    """Bootstrap samples of the confidence intervals and the paired test."""
    columns: Table = field(default_factory=dict)
    """Format and columns of a file: `source_column`, `target_column`, …, settings of `CorpusFiles`; of a text encoder's
    examples `text`, `second_text` and `label`, settings of `ExampleFiles`."""
    target_language: str | None = None
    """Target language of a multilingual model."""
    source_language: str | None = None
    """Source language of a multilingual model that needs it."""
    image_folder: Path | str | None = None
    """Where the relative paths of a captioner's images start; default: the folder of the file that lists them."""
    device: str = "cpu"
    """Device of the model: cpu, cuda, mps, or auto."""
    name: str | None = None
    """Name of a loaded model in messages and results; default: its folder, if it was given as one."""


def evaluate(
    model: Translator | Generator | TextEncoder | Path | str,
    source: Texts | None = None,
    references: Texts | Sequence[Texts] | None = None,
    *,
    path: Path | str | None = None,
    against: Path | str | None = None,
    options: EvaluationOptions | None = None,
    **search: Any,
) -> TranslationEvaluation | EncoderEvaluation:
    """Evaluate a model on a test set: `found["bleu"]`, `found.lines()` as printed by `transduce evaluate`.

    `model` is a run or model folder, or what `transduce.load` returned. A translation model needs `source` and
    `references`: files, or lists of strings; several references are a list of files, or a list of lists, each as long
    as the source. One file with both sides is given as `path` instead. `against` is another model to compare with. A
    text encoder needs `path`, a file of labelled examples. Further arguments are the fields of `EvaluationOptions`
    (`metrics=["chrf"]`) and options of the search (`beam_size=5`).
    """
    fields = {name: search.pop(name) for name in EvaluationOptions.__dataclass_fields__ if name in search}
    known = [*EvaluationOptions.__dataclass_fields__, *SearchOptions.model_fields, "constraints"]
    if unknown := next((name for name in search if name not in {*known, *OTHER_NAMES}), None):
        raise SettingsError(f"unknown argument {unknown}{suggestion(unknown, known)}")
    options = replace(options or EvaluationOptions(), **fields)
    loaded, name = (load(model), str(model)) if isinstance(model, Path | str) else (model, options.name or "model")
    path = None if path is None else os.fspath(path)
    if isinstance(loaded, TextEncoder):
        if path is None or source is not None or references is not None or against is not None:
            raise SettingsError(f"{name}: is a text encoder; give a file of labelled examples with path, nothing else")
        move(loaded.model, options.device)
        return evaluate_encoder(loaded, path, options.columns, options.metrics, options.samples)
    if isinstance(loaded, Generator) and not isinstance(model, Path | str):
        raise SettingsError(f"{name}: is a language model; its perplexity is `transduce score {name} --text FILE`")
    first = loaded if isinstance(loaded, Translator) else load_translator(name)
    models = [(name, first), *([] if against is None else [(str(against), load_translator(against))])]
    languages = (options.source_language or first.languages.source, options.target_language or first.languages.target)
    test = _test_set(source, references, path, options.columns, languages)
    metrics = options.metrics or default_metrics(first.notes)
    chosen = select_metrics([metrics] if isinstance(metrics, str) else metrics, options.tokenize, options.lowercase)
    document = path or (None if is_several(source) else os.fspath(source))  # type: ignore[arg-type]
    for _, translator in models:
        move(translator.model, options.device)
        translator.read_images_from(options.image_folder, document)
        if translator.languages.tags is not None or not _names_languages(path, options.columns):
            translator.languages.select(options.target_language, options.source_language)
    return evaluate_translators(models, test, chosen, options.samples, search)


def _test_set(
    source: Texts | None,
    references: Texts | Sequence[Texts] | None,
    path: str | None,
    columns: Table,
    languages: tuple[str | None, str | None],
) -> TestSet:
    """Return a test set from files, or from lists of strings."""
    if not is_several(source):
        several = references if is_several(references) else [] if references is None else [references]
        files = [os.fspath(one) for one in several]  # type: ignore[arg-type, union-attr]
        return read_test_set(None if source is None else os.fspath(source), files, path, columns, languages)  # type: ignore[arg-type]
    if path is not None:
        raise SettingsError("give path alone, or source with references")
    if not is_several(references):
        raise TypeError("references must be a list of strings, as source is; or a list of such lists")
    texts, given = list(checked_texts(source, "source")), list(references)  # type: ignore[arg-type]
    columns_of = [given] if all(isinstance(one, str) for one in given) else given
    sides = [list(checked_texts(one, "references")) for one in columns_of]
    for side in sides:
        if len(side) != len(texts):
            several = " (each list of references has one for each source)" if side is not given else ""
            raise DataError(f"references has {len(side):,} texts, source has {len(texts):,}; they must agree{several}")
    if not texts:
        raise DataError("source is empty; there is nothing to evaluate")
    return TestSet(texts, [list(several) for several in zip(*sides, strict=True)])


def _names_languages(path: str | None, columns: Table) -> bool:
    """Whether languages select those of a file, for a model of one language pair."""
    return path is not None and CorpusFiles.from_table({**columns, "path": path}, path).layout in ("tmx", "xliff")


def _train_or_finish(
    trainer: Trainer, options: RunOptions, reporter: Reporter, stop_reason: Callable[[], str | None]
) -> None:
    folder = options.folder
    if not options.finish:
        with catch_signals(str(folder)) as interruption, trainer.ranks.monitored():
            interruption.patient = trainer.ranks.world > 1
            trainer.run(reporter, interruption, stop_reason)
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


def _gpu_of(recipe: Recipe) -> contextlib.AbstractContextManager[None]:
    return gpu_settings(recipe.training.device, recipe.training.precision == "bfloat16")


def _resumed_recipe(recipe: Recipe, folder: Path) -> Recipe:
    """Fill in the recipe of a resumed run; it must be the one that the run was started with, but for more updates."""
    begun = fill_in(resume_recipe(folder))
    if recipe.training.batch_tokens == "auto":  # as chosen then
        size = recipe.training.micro_batch_tokens or begun.training.micro_batch_tokens
        recipe = recipe.but_training(batch_tokens=begun.training.batch_tokens, micro_batch_tokens=size)
    if recipe.training.precision == "auto":  # as chosen on the machine that started it
        recipe = recipe.but_training(precision=begun.training.precision)
    if begun.training.is_planned and not recipe.training.is_planned:
        recipe = recipe.but_training(epochs=None, time_budget=None, updates=begun.training.updates)
    for name in ("warmup", "validate_every"):  # fractions of the updates that it was started with
        if isinstance(getattr(recipe.training, name), float):
            recipe = recipe.but_training(**{name: getattr(begun.training, name)})
    recipe = fill_in(recipe)
    if begun.but_training(updates=recipe.training.updates).without_labels() != recipe.without_labels():
        raise SettingsError(f"{folder}: was started with another recipe; a resumed run keeps its own")
    if recipe.training.updates < begun.training.updates:
        raise SettingsError(
            f"{folder}: is a run of {begun.training.updates:,} updates, which can be extended but not shortened; to "
            f"end it earlier, stop it and make its model with `transduce train --finish {folder}`"
        )
    return recipe


def _check_unchanged(trainer: Trainer, recipe: Recipe) -> None:
    """Raise if a checkpoint was saved, or the corpus prepared, with anything else than this run has."""
    found = trainer.checkpoints.latest()
    if found is None:
        check_preparation(trainer.prepared, recipe)
        return
    before, now = trainer.checkpoints.fingerprint(found[0]), trainer.fingerprint
    settings = before.get(SETTINGS)
    if settings is not None:  # a run may be extended, and settings that are newer than it have their defaults
        settings = merge(settings, {"training": {"updates": recipe.training.updates}})
        settings = settings_of(Recipe.from_tables(settings, str(trainer.checkpoints.path(found[0]))))
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
    worth = "there is no validation data to measure it on" if final is None else str(final)
    reporter.warn(f"the model is {weights_from(updates, recipe.training)}: {worth}")
    corpus, task, search = trainer.prepared, recipe.task, recipe.search
    if recipe.training.tune_search:
        tuned = task.tune_search(search, corpus, recipe.training, trainer.train_step.workers)
        if tuned is not None:
            search, why = tuned
            reporter.warn(why)
    notes = {**task.notes(search, corpus), **alignment_notes(trainer.model)}
    contents = ModelFolder(trainer.model, recipe.model, corpus.source_tokenizer, corpus.target_tokenizer, notes)
    text, before = task.card(contents, corpus), trainer.progress.before
    card = model_card(contents, text, corpus, recipe.training, updates, final, trainer.fingerprint, before)
    save_model(folder / MODEL, contents, card)
    if final is not None:
        trainer.journal.write("final", updates=updates, **final.measures())
