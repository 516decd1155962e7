"""The five tables of a run: read, filled in, saved with the run, and carried out.

    [data]       which pairs                         data.DataConfig
    [tokenizer]  what a token is                     text.TokenizerConfig
    [model]      name or preset, and its sizes       one of models.catalog
    [training]   how it learns                       training.TrainingConfig
    [search]     how it translates unless asked      decoding.SearchOptions

Precedence: command line, file, preset. The filled-in recipe is what is saved; fed back, it gives the same run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from transduce.advice import KINDS, advise, survey
from transduce.checkpoint import ModelFolder, save_model
from transduce.config import Config, Table, merge, override, read_toml, write_toml
from transduce.data.config import DataConfig, corpus_pairs
from transduce.data.prepare import prepare
from transduce.data.store import Prepared, load_prepared
from transduce.decoding.options import SearchOptions
from transduce.errors import MissingInput, ModelFolderError, SettingsError, suggestion
from transduce.models import catalog
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.storage import MANIFEST, file_aside, sha256
from transduce.text.corpus import STDIN, CorpusFiles
from transduce.text.tokenizer import TokenizerConfig
from transduce.training.card import model_card
from transduce.training.config import TrainingConfig
from transduce.training.finish import put_final_weights
from transduce.training.interruption import listening
from transduce.training.loop import Trainer
from transduce.training.reporter import Reporter, Silent
from transduce.training.run_folder import DATA, MODEL, RECIPE, emptied_on_error, held
from transduce.training.vectors import start_from_vectors

TABLES = ("data", "tokenizer", "model", "training", "search")


@dataclass(frozen=True)
class Recipe:
    """What to run."""

    data: DataConfig
    tokenizer: TokenizerConfig
    model: Config
    training: TrainingConfig
    search: SearchOptions

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], where: str) -> Recipe:
        """Read plain values; `where` names their file in a refusal."""
        _refuse_foreign(tables, where)
        if "data" not in tables:
            raise SettingsError(f"{where} needs a table [data] that says which pairs to learn from")
        recipe = cls(
            data=DataConfig.from_table(tables["data"], f"{where}: data"),
            tokenizer=TokenizerConfig.from_table(tables.get("tokenizer", {}), f"{where}: tokenizer"),
            model=catalog.read_model_table(tables.get("model", {}), f"{where}: model"),
            training=TrainingConfig.from_table(tables.get("training", {}), f"{where}: training"),
            search=SearchOptions.from_table(tables.get("search", {}), f"{where}: search"),
        )
        if getattr(recipe.model, "tied", None) == "all" and not recipe.tokenizer.joint:
            raise SettingsError(
                f"{where}: model.tied = 'all' needs one vocabulary for both sides; "
                "set tokenizer.joint = true or model.tied = 'target'"
            )
        return recipe

    def to_tables(self) -> Table:
        """Return plain values that `from_tables` reads back."""
        return {
            "data": self.data.to_table(),
            "tokenizer": self.tokenizer.to_table(),
            "model": {"name": catalog.name_of(self.model), **self.model.to_table()},
            "training": self.training.to_table(),
            "search": self.search.to_table(),
        }

    def to_toml(self) -> str:
        """Return the text of a recipe file."""
        return write_toml(self.to_tables())


def read_recipe(
    path: Path | None, changes: Sequence[str] = (), base: Table | None = None, prepared: Prepared | None = None
) -> tuple[Recipe, list[str]]:
    """Read a recipe file over `base`, with `table.setting=value` changes laid over both.

    Without a file, and where a file leaves out tokenizer, model and training altogether, they are chosen from the
    corpus, or from what was prepared of it. Returns the recipe and the reasons for what was chosen.
    """
    if prepared is not None:
        base = merge({"data": prepared.data.to_table(), "tokenizer": prepared.tokenizer.to_table()}, base or {})
    given = {} if path is None else read_toml(path)
    tables = merge(base or {}, given)
    for change in changes:
        tables = override(tables, change)
    where = str(path) if path is not None else "the command line"
    reasons: list[str] = []
    _refuse_foreign(tables, where)
    if not {"tokenizer", "model", "training"} & given.keys():
        data = DataConfig.from_table(_table(tables, "data", where), f"{where}: data")
        advice = advise(survey(_pairs(data) if prepared is None else prepared.train.texts()), tables.get("tokenizer"))
        tables, reasons = _over(advice.tables, tables), advice.reasons
    recipe = Recipe.from_tables(tables, where)
    return recipe, reasons


def _refuse_foreign(tables: Mapping[str, Any], where: str) -> None:
    for name, table in tables.items():
        if name not in TABLES:
            raise SettingsError(f"{where} has no table '{name}'{suggestion(name, TABLES)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{where}: '{name}' must be a table, not {table!r}")


def _pairs(data: DataConfig) -> Iterator[tuple[str, str]]:
    if isinstance(data.train, CorpusFiles) and STDIN in (data.train.source, data.train.target, data.train.path):
        raise SettingsError(
            "settings are chosen by reading the corpus, and standard input can be read once only; "
            "give files, or a recipe with the tables tokenizer, model and training"
        )
    return ((pair.source, pair.target) for pair in corpus_pairs(data.train))


def _table(tables: Table, name: str, where: str) -> Table:
    table = tables.get(name)
    if not isinstance(table, dict):
        raise SettingsError(f"{where} needs a table [{name}]")
    return table


def _over(chosen: Table, given: Table) -> Table:
    """Lay what a person gave over what was chosen; a model or kind of token of theirs replaces the chosen whole."""
    model, tokenizer = given.get("model", {}), given.get("tokenizer", {})
    if isinstance(model, dict) and {"name", "preset"} & model.keys():
        chosen = {**chosen, "model": {}}
    if isinstance(tokenizer, dict) and KINDS & tokenizer.keys():
        chosen = {**chosen, "tokenizer": {}}
    return merge(chosen, given)


def train(
    recipe: Recipe | Path | str,
    output: Path | str,
    *,
    resume: bool = False,
    prepared: Path | str | None = None,
    reporter: Reporter | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Path:
    """Carry out a recipe in a run folder and return the folder; `transduce.load` then gives the translator.

    `prepared` is a folder that `transduce prepare` wrote, used instead of preparing the recipe's corpora. With
    `resume` a run that was stopped goes on from its newest whole checkpoint, to the same result as if it never had.
    """
    if not isinstance(recipe, Recipe):
        recipe, _ = read_recipe(Path(recipe))
    folder, reporter = Path(output), reporter or Silent()
    recipe = _fill_in(recipe)
    if resume and _fill_in(resume_recipe(folder)) != recipe:
        raise SettingsError(f"{folder}: was started with another recipe; a resumed run keeps its own")
    with held(folder, resume), _as_found():
        trainer = _set_up(recipe, folder, resume, None if prepared is None else Path(prepared), reporter, progress)
        try:
            _refuse_changes(trainer)
            trainer.resume(reporter)
            with listening(str(folder)) as interruption:
                trainer.run(reporter, interruption)
            _finish(trainer, recipe, folder)
        finally:
            trainer.journal.close()
    reporter.end(str(folder))
    return folder


def resume_recipe(folder: Path) -> Recipe:
    """Read the recipe that a run was started with."""
    if not (folder / RECIPE).is_file():
        raise MissingInput(f"{folder}: there is no run to resume (no {RECIPE}); start one with `transduce train`")
    return Recipe.from_tables(read_toml(folder / RECIPE), str(folder / RECIPE))


def _fill_in(recipe: Recipe) -> Recipe:
    threads = recipe.training.threads or torch.get_num_threads()
    device = recipe.training.device
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = "cuda" if there["cuda"] else "mps" if there["mps"] else "cpu"
    if not there.get(device, True):
        raise SettingsError(f"training.device = '{device}': this machine has none that torch can use; set it to 'auto'")
    training = recipe.training.but(threads=threads, device=device)
    return Recipe(recipe.data, recipe.tokenizer, recipe.model, training, recipe.search)


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
    reporter: Reporter,
    progress: Callable[[str, int], None] | None,
) -> Trainer:
    """Make all that training needs; a new run for which that fails leaves nothing behind."""
    with contextlib.nullcontext() if resume else emptied_on_error(folder):
        if not resume:
            with file_aside(folder / RECIPE) as aside:
                aside.write_text(recipe.to_toml(), encoding="utf-8")
        _refuse_too_large(recipe, VocabularySizes(1, 1))  # before hours go into preparing
        corpus = _corpus(folder, recipe, prepared, progress)
        return Trainer(_build(recipe, corpus, reporter), corpus, recipe.training, folder, _facts(recipe, corpus))


def _corpus(
    folder: Path, recipe: Recipe, prepared: Path | None, progress: Callable[[str, int], None] | None
) -> Prepared:
    place = folder / DATA
    if prepared is not None:
        found = load_prepared(prepared)
        if (found.data, found.tokenizer) != (recipe.data, recipe.tokenizer):
            raise SettingsError(
                f"{prepared}: was prepared with other settings of [data] or [tokenizer] than the recipe's; "
                "leave these tables out, or prepare again"
            )
        if not place.exists():  # a resumed run has it already; whether it is still the same is asked elsewhere
            place.symlink_to(prepared.resolve())
    elif not place.exists():
        prepare(recipe.data, recipe.tokenizer, place, progress)
    return load_prepared(place)


def _build(recipe: Recipe, corpus: Prepared, reporter: Reporter) -> AnyTransducer:
    torch.set_num_threads(recipe.training.threads or 1)
    sizes = VocabularySizes(corpus.source_tokenizer.size, corpus.target_tokenizer.size)
    _refuse_too_large(recipe, sizes)
    model = catalog.build(recipe.model, sizes, recipe.training.seed)
    _refuse_too_long(model, corpus)
    sides = (
        ("source", recipe.training.source_vectors, corpus.source_tokenizer),
        ("target", recipe.training.target_vectors, corpus.target_tokenizer),
    )
    for side, path, tokenizer in sides:
        if path is not None:
            embedding = getattr(model, f"{side}_embedding")
            found = start_from_vectors(embedding, tokenizer, path, recipe.training.freeze_vectors)
            reporter.warn(f"{path}: gave vectors to {found:,} of {tokenizer.size:,} {side} tokens")
    return model.to(recipe.training.device)


def _refuse_too_large(recipe: Recipe, sizes: VocabularySizes) -> None:
    """Say no to a model that this machine cannot hold, instead of filling its memory to find out."""
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in catalog.build(recipe.model, sizes).parameters())
    needed = parameters * (16 if recipe.training.device == "cpu" else 4)  # weights; gradients and Adam's two moments
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there > 0:
        raise SettingsError(
            f"the model has {parameters:,} parameters, which take {needed / 2**30:,.1f} GiB to train; this machine has "
            f"{there / 2**30:,.1f} GiB: choose smaller sizes in [model] (`transduce cost` shows what they take)"
        )


def _refuse_too_long(model: AnyTransducer, corpus: Prepared) -> None:
    """Say no to a text that the model cannot read before training comes to it."""
    for name, split in corpus.report.splits().items():
        for side, longest, limit in (
            ("source", split.source.longest, model.max_source),
            ("target", split.target.longest, model.max_target),
        ):
            if limit is not None and longest + 1 > limit:
                raise SettingsError(
                    f"a {side} of the {name} corpus has {longest:,} tokens, but the model learns {limit:,} positions, "
                    f"the start or end token's among them; set data.max_length={limit - 1} or a larger max_positions"
                )


def _facts(recipe: Recipe, corpus: Prepared) -> Table:
    """What the weights depend on."""
    return {
        "recipe": hashlib.sha256(recipe.to_toml().encode()).hexdigest(),
        "data": sha256(corpus.folder / MANIFEST),
        "seed": recipe.training.seed,
        "threads": recipe.training.threads,
        "torch": torch.__version__,
    }


def _refuse_changes(trainer: Trainer) -> None:
    """A checkpoint goes on only with what it was made with: anything else would be another run."""
    found = trainer.checkpoints.latest()
    if found is None:
        return
    before = trainer.checkpoints.facts(found[0])
    for name, now in trainer.facts.items():
        if before.get(name) != now:
            raise ModelFolderError(
                f"{trainer.checkpoints.path(found[0])}: was saved with {name} {str(before.get(name))[:16]}, "
                f"now it is {str(now)[:16]}; put it back, or start a new run in another folder"
            )


def _finish(trainer: Trainer, recipe: Recipe, folder: Path) -> None:
    """Make the model folder, with the card."""
    updates, final = put_final_weights(trainer)
    corpus = trainer.prepared
    notes = {
        "source_language": recipe.data.source_language,
        "target_language": recipe.data.target_language,
        "search": recipe.search.to_table(),
    }
    contents = ModelFolder(trainer.model, recipe.model, corpus.source_tokenizer, corpus.target_tokenizer, notes)
    card = model_card(contents, corpus, recipe.training, updates, final, trainer.facts)
    save_model(folder / MODEL, contents, card)
    if final is not None:
        trainer.journal.write("final", updates=updates, loss=final.loss, accuracy=final.accuracy, **final.scores)
