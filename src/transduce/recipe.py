"""The five tables of a run: read, filled in, and saved with the run; `run` carries them out.

    [data]       which pairs                         data.DataConfig
    [tokenizer]  what a token is                     text.TokenizerConfig
    [model]      name or preset, and its sizes       one of models.catalog
    [training]   how it learns                       training.TrainingConfig
    [search]     how it translates unless asked      decoding.SearchOptions

Precedence: command line, file, preset. The filled-in recipe is what is saved; fed back, it gives the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from transduce.advice import KINDS, advise, advise_going_on, survey
from transduce.config import Config, Table, merge, override, read_toml, write_toml
from transduce.data.config import DataConfig, corpus_pairs, reads_stdin
from transduce.data.store import Prepared
from transduce.decoding.options import SearchOptions
from transduce.errors import MissingInput, SettingsError, suggestion
from transduce.models import catalog
from transduce.models.transformer import SHARED
from transduce.origin import fit, habits, open_origin, peak_rate, settled
from transduce.text.tokenizer import TokenizerConfig
from transduce.training.config import LARGEST_SLICE, TrainingConfig, usual_slice
from transduce.training.run_folder import RECIPE

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
        tied = getattr(recipe.model, "tied", None)
        if tied in SHARED and not recipe.tokenizer.joint:
            raise SettingsError(
                f"{where}: model.tied = '{tied}' needs one vocabulary for both sides; "
                "set tokenizer.joint = true or model.tied = 'target'"
            )
        return recipe

    def but_training(self, **changes: Any) -> Recipe:
        """Return the recipe with some settings of [training] changed."""
        return replace(self, training=self.training.but(**changes))

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
    """Read a recipe file, with the tables of `base` and then `table.setting=value` changes laid over it.

    Without a file, and where a file leaves out tokenizer, model and training altogether, they are chosen from the
    corpus, or from what was prepared of it. A run that starts from another has that one's model and tokenizers, and
    how it learns is chosen for going on. Returns the recipe and the reasons for what was chosen.
    """
    given = {} if path is None else read_toml(path)
    tables = given
    if prepared is not None:
        tables = merge({"data": prepared.data.to_table(), "tokenizer": prepared.tokenizer.to_table()}, given)
    for name, table in (base or {}).items():
        tables = {**tables, name: {**_table(tables, name, "the command line", {}), **table}}
    for change in changes:
        tables = override(tables, change)
    where = str(path) if path is not None else "the command line"
    reasons: list[str] = []
    _refuse_foreign(tables, where)
    if tables.get("training", {}).get("start_from") is not None:
        tables, reasons = _started(tables, where, prepared)
    elif not {"tokenizer", "model", "training"} & given.keys():
        data = DataConfig.from_table(_table(tables, "data", where), f"{where}: data")
        texts, count = (_pairs(data), None) if prepared is None else (prepared.train.texts(), len(prepared.train))
        advice = advise(survey(texts, count), tables.get("tokenizer"))
        tables, reasons = _over(advice.tables, tables), advice.reasons
    recipe = Recipe.from_tables(tables, where)
    return recipe, reasons


def _started(tables: Table, where: str, prepared: Prepared | None) -> tuple[Table, list[str]]:
    """Fill in the tables of a run that starts from another; what a saved recipe says already is not chosen again."""
    training = TrainingConfig.from_table(tables["training"], f"{where}: training")
    assert training.start_from is not None
    origin = open_origin(training.start_from)
    tables = settled(origin, tables, where, prepared is not None)
    if {"learning_rate", "warmup", "updates", "schedule"} <= tables["training"].keys():
        return tables, []
    data = DataConfig.from_table(_table(tables, "data", where), f"{where}: data")

    def texts() -> Iterator[tuple[str, str]]:
        return _pairs(data) if prepared is None else prepared.train.texts()

    found = survey(texts(), None if prepared is None else len(prepared.train))
    advice = advise_going_on(found, *peak_rate(origin), tables["training"])
    tables = merge({"training": {**advice.tables["training"], **habits(origin)}}, tables)
    return tables, [*fit(origin, texts()), *advice.reasons]


def _refuse_foreign(tables: Mapping[str, Any], where: str) -> None:
    for name, table in tables.items():
        if name not in TABLES:
            raise SettingsError(f"{where} has no table '{name}'{suggestion(name, TABLES)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{where}: '{name}' must be a table, not {table!r}")


def _pairs(data: DataConfig) -> Iterator[tuple[str, str]]:
    if any(map(reads_stdin, data.corpora)):
        raise SettingsError(
            "settings are chosen by reading the corpus, and standard input can be read once only; "
            "give files, or a recipe with the tables tokenizer, model and training"
        )
    return ((pair.source, pair.target) for pair in corpus_pairs(data.train))


def _table(tables: Table, name: str, where: str, otherwise: Table | None = None) -> Table:
    table = tables.get(name, otherwise)
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


def resume_recipe(folder: Path) -> Recipe:
    """Read the recipe that a run was started with."""
    if not (folder / RECIPE).is_file():
        raise MissingInput(f"{folder}: there is no run to resume (no {RECIPE}); start one with `transduce train`")
    return Recipe.from_tables(read_toml(folder / RECIPE), str(folder / RECIPE))


def fill_in(recipe: Recipe) -> Recipe:
    """Choose what depends on this machine."""
    threads = recipe.training.threads or torch.get_num_threads()
    device = recipe.training.device
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = "cuda" if there["cuda"] else "mps" if there["mps"] else "cpu"
    if not there.get(device, True):
        raise SettingsError(f"training.device = '{device}': this machine has none that torch can use; set it to 'auto'")
    precision = recipe.training.precision
    if precision == "auto":
        precision = "bfloat16" if device == "cuda" else "float32"
    width: int = getattr(recipe.model, "model_dim", 0) or getattr(recipe.model, "hidden_dim", LARGEST_SLICE)
    slices = recipe.training.slice_tokens or usual_slice(width, half=precision == "bfloat16")
    return recipe.but_training(threads=threads, device=device, precision=precision, slice_tokens=slices)
