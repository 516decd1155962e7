"""Recipes: the five tables of a run, read, completed and saved with it; `run` executes them.

    [data]       corpora and filters                 one of tasks/*/config.py
    [tokenizer]  kind and size of the vocabulary     text.tokenizer.TokenizerConfig
    [model]      name or preset, and sizes           one of models.catalog
    [training]   optimisation and validation         training.TrainingConfig
    [search]     default search options              inference.search.SearchOptions

Precedence: command line, file, preset. The complete recipe is saved with the run and reproduces it.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from transduce.config import Config, Table, merge, override, read_toml, write_toml
from transduce.data.prepared import Prepared
from transduce.data.settings import DataConfig
from transduce.errors import DataError, MissingInput, ModelFolderError, SettingsError, brief, suggestion
from transduce.inference.search.options import SearchOptions
from transduce.models import catalog
from transduce.models.interface import VocabularySizes, choose_device
from transduce.models.transformer import SHARED
from transduce.storage.layout import RECIPE
from transduce.storage.manifest import check_run_format
from transduce.tasks.catalog import load_prepared, read_data_table, task_for
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.compatibility import NEED_ALIGNMENTS, outline
from transduce.training.config import DECOUPLED, LARGEST_MICRO_BATCH, TrainingConfig, default_micro_batch
from transduce.training.initial_checkpoint import InitialCheckpoint
from transduce.training.muon import hidden_matrices
from transduce.training.task import Defaults, Task

TABLES = ("data", "tokenizer", "model", "training", "search")
CHOSEN = {"tokenizer", "model", "training"}
"""Tables that are chosen from the corpus where a recipe has none of them."""
FOR_FULL_ATTENTION = {"positions", "attention_dropout"}
"""Chosen settings of [model] that efficient attention may lack."""
FINE_TUNING = {"learning_rate", "warmup", "updates", "schedule"}
"""Settings of [training] that are chosen for fine-tuning unless all of them are given."""


@dataclass(frozen=True)
class Recipe:
    """The settings of a run."""

    data: DataConfig
    tokenizer: TokenizerConfig
    model: Config
    training: TrainingConfig
    search: SearchOptions

    @property
    def task(self) -> Task[Any]:
        """The task that [data] is for."""
        return task_for(self.data)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], where: str) -> Recipe:
        """Read plain values; `where` names their file in errors."""
        _check_tables(tables, where)
        if "data" not in tables:
            raise SettingsError(f"{where} needs a table [data] with the training corpus")
        model = catalog.read_model_table(tables.get("model", {}), f"{where}: model")
        task = task_for(read_data_table(tables["data"], f"{where}: data"))
        model = task.complete_model(model, tables.get("model", {}), where)
        given = task.training_defaults() | tables.get("training", {})
        training = TrainingConfig.from_table(given, f"{where}: training")
        recipe = cls(
            data=task.complete_data(model, training, where),
            tokenizer=read_tokenizer_table(task.data, tables.get("tokenizer", {}), f"{where}: tokenizer"),
            model=model,
            training=training,
            search=SearchOptions.from_table(task.search_table(tables.get("search", {})), f"{where}: search"),
        )
        recipe.task.check(recipe.model, recipe.tokenizer, recipe.training, where)
        tied = getattr(recipe.model, "tied_embeddings", None)
        is_new = recipe.training.initial_checkpoint is None  # else its tokenizers share their numbers if its weights do
        if tied in SHARED and not recipe.tokenizer.joint and is_new:
            raise SettingsError(
                f"{where}: model.tied_embeddings = '{tied}' needs one vocabulary for both sides; "
                "set tokenizer.joint = true or model.tied_embeddings = 'target'"
            )
        return recipe

    def but_training(self, **changes: Any) -> Recipe:
        """Return the recipe with some settings of [training] changed."""
        return replace(self, training=self.training.but(**changes))

    def with_updates(self, updates: int) -> Recipe:
        """Return the recipe with a number of updates in place of epochs or a time budget, and what follows from it."""
        planned = self.training.but(updates=updates, epochs=None, time_budget=None)
        numbers = {"warmup": planned.warmup_updates, "validate_every": planned.validation_interval}
        recipe = replace(self, training=planned.but(**numbers))
        self.task.check(recipe.model, recipe.tokenizer, recipe.training, "training.updates")
        return recipe

    def with_labels(self, prepared: Prepared) -> Recipe:
        """Return the recipe with what the model needs to know of the prepared corpus: the labels of a text encoder."""
        return replace(self, model=self.task.with_labels(self.model, prepared))

    def without_labels(self) -> Recipe:
        """Return the recipe as it was before the corpus was prepared."""
        return replace(self, model=self.task.without_labels(self.model))

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

    def __repr__(self) -> str:
        length = {name: getattr(self.training, name) for name in ("updates", "epochs", "time_budget")}
        given = next((f"{name}={value!r}" for name, value in length.items() if value is not None), "updates=None")
        return f"Recipe(task={self.task.name!r}, model={catalog.name_of(self.model)!r}, {given})"

    def _repr_html_(self) -> str:
        """Show the recipe file in a notebook."""
        return f"<pre>{html.escape(self.to_toml())}</pre>"


def read_tokenizer_table(data: DataConfig, table: Table, where: str) -> TokenizerConfig:
    """Read [tokenizer] with the defaults of the task."""
    return TokenizerConfig.from_table(task_for(data).tokenizer_defaults(table) | table, where)


def read_recipe(
    path: Path | None,
    changes: Sequence[str] = (),
    base: Table | None = None,
    prepared: Prepared | None = None,
    given_by: str = "the command line",
) -> tuple[Recipe, list[str]]:
    """Read a recipe file, with the tables of `base` and then `table.setting=value` changes laid over it.

    Without a file, and where a file has neither tokenizer nor model nor training, they are chosen from the corpus, or
    from the prepared corpus. A run with an initial checkpoint uses its model and tokenizers, and training settings for
    fine-tuning. Returns the recipe and the reasons for what was chosen. `given_by` names what gave `base`.
    """
    given = {} if path is None else read_toml(path)
    tables = given
    if prepared is not None:
        tables = merge({"data": prepared.data.to_table(), "tokenizer": prepared.tokenizer.to_table()}, given)
    where = given_by if path is None else str(path)
    tables = _changed_tables(tables, changes, base, where)
    reasons: list[str] = []
    if tables.get("training", {}).get("initial_checkpoint") is not None:
        tables, reasons = _fine_tuning_tables(tables, where, prepared)
    elif not CHOSEN & given.keys():
        defaults = _read_task(tables, where).choose_settings(tables.get("tokenizer", {}), prepared)
        tables, reasons = _lay_over(defaults, tables, where)
    recipe = Recipe.from_tables(tables, where)
    return recipe, reasons


def read_preparation(
    path: Path | None, changes: Sequence[str] = (), base: Table | None = None
) -> tuple[DataConfig, TokenizerConfig, list[str]]:
    """Read [data] and [tokenizer] of a recipe, as `read_recipe` does; return the reasons for what was chosen too."""
    given, where = {} if path is None else read_toml(path), _where(path)
    tables = _changed_tables(given, changes, base, where)
    table: Table = tables.get("data", {})
    if not table.get("train"):
        raise SettingsError(f"{where}: no training corpus; use --source and --target, --path, --text or --recipe")
    data = read_data_table(table, f"{where}: data")
    chosen, reasons = tables.get("tokenizer", {}), list[str]()
    if not CHOSEN & given.keys():
        chosen, reasons = choose_tokenizer(data, chosen)
    return data, read_tokenizer_table(data, chosen, f"{where}: tokenizer"), reasons


def _where(path: Path | None) -> str:
    return "the command line" if path is None else str(path)


def _changed_tables(tables: Table, changes: Sequence[str], base: Table | None, where: str) -> Table:
    """Lay the settings of `base` and then the changes over the tables of a recipe."""
    _check_tables(tables, where)
    for name, table in (base or {}).items():
        tables = {**tables, name: {**tables.get(name, {}), **table}}
    for change in changes:
        _check_names_table(change)
        tables = override(tables, change)
        _check_tables(tables, f"--set {change}")
    return tables


def choose_tokenizer(data: DataConfig, given: Table) -> tuple[Table, list[str]]:
    """Complete a table [tokenizer] as `read_recipe` does for a recipe of [data] alone; return the reasons too.

    Nothing is chosen where tokenizers are given, or where the corpus can be read only once.
    """
    if "folder" in given:
        return given, []
    defaults = task_for(data).choose_tokenizer(given)
    if defaults is None:
        return given, []
    only = {"tokenizer": defaults.tables["tokenizer"], "training": {}}
    tables, reasons = _lay_over(Defaults(only, defaults.reasons), {"tokenizer": given}, "")
    return tables["tokenizer"], reasons


def _fine_tuning_tables(tables: Table, where: str, prepared: Prepared | None) -> tuple[Table, list[str]]:
    """Complete the tables of a run with an initial checkpoint; settings of a saved recipe are not chosen again."""
    defaults = {name: TrainingConfig.model_fields[name].default for name in ("keep_last", "average_checkpoints")}
    given = _compatible(defaults, tables["training"]) | tables["training"]
    training = TrainingConfig.from_table(given, f"{where}: training")
    assert training.initial_checkpoint is not None
    checkpoint = InitialCheckpoint.open(training.initial_checkpoint)
    languages = _read_task(tables, where).languages_from(checkpoint)
    tables = checkpoint.complete(merge({"data": languages}, tables), where, prepared is not None)
    if tables["training"].keys() >= FINE_TUNING:
        return tables, []
    chosen = _read_task(tables, where).choose_fine_tuning(
        checkpoint, tables["training"], prepared, _texts_before(checkpoint)
    )
    settings = _compatible(chosen.tables["training"], tables["training"])
    return merge({"data": chosen.tables.get("data", {}), "training": settings}, tables), chosen.reasons


def _texts_before(checkpoint: InitialCheckpoint) -> Iterator[tuple[str, str]] | None:
    """The pairs that a model was trained on, if they still exist; they are needed for a comparison only."""
    try:
        before = None if checkpoint.data is None else load_prepared(checkpoint.data)
    except (DataError, MissingInput, ModelFolderError):
        return None
    return None if before is None else task_for(before.data).texts(before)


def _read_task(tables: Table, where: str) -> Task[Any]:
    return task_for(read_data_table(_table(tables, "data", where), f"{where}: data"))


def _check_tables(tables: Mapping[str, Any], where: str) -> None:
    for name, table in tables.items():
        if name not in TABLES:
            raise SettingsError(f"{where} has no table '{name}'{suggestion(name, TABLES)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{where}: '{name}' must be a table, not {table!r}")


def _check_names_table(change: str) -> None:
    """Raise if a change names a known setting without its table."""
    name = change.partition("=")[0].strip()
    kinds: dict[str, Sequence[type[Config]]] = {
        "model": [one.config for one in catalog.MODELS.values()],
        "training": [TrainingConfig],
    }
    kinds |= {"search": [SearchOptions], "tokenizer": [TokenizerConfig]}
    for table, configs in kinds.items():
        if name not in TABLES and any(name in config.model_fields for config in configs):
            raise SettingsError(f"--set {change}: name the table too: --set {table}.{change}")


def _table(tables: Table, name: str, where: str, otherwise: Table | None = None) -> Table:
    table = tables.get(name, otherwise)
    if not isinstance(table, dict):
        raise SettingsError(f"{where} needs a table [{name}]")
    return table


def _lay_over(defaults: Defaults, given: Table, where: str) -> tuple[Table, list[str]]:
    """Lay given tables over chosen ones; another model, or given tokenizers, replace the chosen table as a whole.

    A preset with one matrix for both sides yields where there are two vocabularies. Returns the reasons too.
    """
    chosen, reasons = defaults.tables, defaults.reasons
    model, tokenizer = given.get("model", {}), given.get("tokenizer", {})
    if _is_another(model, chosen.get("model", {})):
        training = {name: value for name, value in chosen["training"].items() if name not in NEED_ALIGNMENTS}
        chosen = {**chosen, "model": {}, "training": training}
        config = catalog.read_model_table(model, f"{where}: model")
        shares = getattr(config, "tied_embeddings", None) in SHARED
        if chosen["training"].get("optimizer") == "muon" and not hidden_matrices(
            outline(config, VocabularySizes(1, 1))
        ):
            chosen["training"] = {**chosen["training"], "optimizer": "adamw"}
            reasons = [*reasons, f"AdamW: a {catalog.name_of(config)} has no blocks of linear layers for Muon"]
        if defaults.tables["model"].get("tied_embeddings") == "target" and shares and "tied_embeddings" not in model:
            chosen["model"] = {"tied_embeddings": "target"}
            reasons = [*reasons, "two vocabularies: separate embeddings (model.tied_embeddings = 'target')"]
    if {"attention", "decoder_attention"} & model.keys():  # efficient attention has no weights to drop out
        kept = {name: value for name, value in chosen["model"].items() if name not in FOR_FULL_ATTENTION}
        chosen = {**chosen, "model": kept}
    if "folder" in tokenizer:
        chosen = {**chosen, "tokenizer": {}}
    chosen = {**chosen, "training": _compatible(chosen["training"], given.get("training", {}))}
    if given.get("search"):
        chosen["training"].pop("tune_search", None)
    changed = [
        f"{table}.{name} = {brief(value)}"
        for table, settings in chosen.items()
        for name, value in given.get(table, {}).items()
        if name in settings and settings[name] != value
    ]
    if "epochs" in defaults.tables["training"] and "epochs" not in chosen["training"]:
        length = {"updates", "epochs", "time_budget"} & given["training"].keys()
        changed += [f"training.{name} = {brief(given['training'][name])}" for name in sorted(length)]
    return merge(chosen, given), [*reasons, *([f"overridden: {', '.join(changed)}"] if changed else [])]


def _is_another(given: Table, chosen: Table) -> bool:
    """Whether a given table [model] names another model than the chosen one."""
    if "preset" in given or "name" not in given:
        return "preset" in given
    name: object = given["name"]
    return name != catalog.name_of(catalog.read_model_table(chosen, "the chosen model"))


def _compatible(chosen: Table, given: Table) -> Table:
    """Change chosen settings of [training] that contradict given ones."""
    chosen = dict(chosen)
    if given.get("optimizer", "adamw") not in DECOUPLED:
        chosen.pop("weight_decay", None)
    if given.get("decode_examples") == 0:
        chosen.pop("metric", None)
    if given.get("bpe_dropout") or given.get("compile"):
        chosen.pop("guided_alignment", None)
    if given.get("bpe_dropout"):
        chosen.pop("recombination", None)
    if {"updates", "epochs", "time_budget"} & given.keys():
        chosen.pop("updates", None)
        chosen.pop("epochs", None)
    if "average_checkpoints" in chosen and isinstance(kept := given.get("keep_last"), int):
        chosen["average_checkpoints"] = min(chosen["average_checkpoints"], kept)
    if "keep_last" in chosen and isinstance(averaged := given.get("average_checkpoints"), int):
        chosen["keep_last"] = max(chosen["keep_last"], averaged)
    return chosen


def resume_recipe(folder: Path) -> Recipe:
    """Read the recipe that a run was started with."""
    if not (folder / RECIPE).is_file():
        raise MissingInput(f"{folder}: no run to resume (no {RECIPE}); start one with `transduce train`")
    check_run_format(folder)
    return Recipe.from_tables(read_toml(folder / RECIPE), str(folder / RECIPE))


def fill_in(recipe: Recipe) -> Recipe:
    """Choose the settings that depend on this machine."""
    threads = recipe.training.threads or torch.get_num_threads()
    device = choose_device(recipe.training.device, "training.device")
    precision, width = recipe.training.precision, _width(recipe.model)
    if precision == "auto":
        precision, _ = choose_precision(device, width)
    size = recipe.training.micro_batch_tokens or default_micro_batch(
        width, precision == "bfloat16", recipe.training.update_tokens, device
    )
    filled = recipe.but_training(threads=threads, device=device, precision=precision, micro_batch_tokens=size)
    return filled.with_updates(recipe.training.updates) if recipe.training.is_planned else filled


def _width(model: Config) -> int:
    width: int = getattr(model, "model_dim", 0) or getattr(model, "hidden_dim", LARGEST_MICRO_BATCH)
    return width


def precision_note(recipe: Recipe) -> str | None:
    """Return what `training.precision = "auto"` becomes on this machine and why; None where it was given."""
    if recipe.training.precision != "auto":
        return None
    device = choose_device(recipe.training.device, "training.device")
    return "precision {}: {}".format(*choose_precision(device, _width(recipe.model)))


def choose_precision(device: str, width: int) -> tuple[Literal["float32", "bfloat16"], str]:
    """Return the faster precision of matrix products and the reason.

    It is a function of the processor and the model, not of a measurement: two runs on one machine must not differ.
    """
    if device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "float32", "this GPU has no bfloat16"
    if device != "cpu":
        return ("bfloat16", "a CUDA GPU") if device == "cuda" else ("float32", f"bfloat16 was not tried on {device}")
    if width < HALF_WIDTH:
        return "float32", f"bfloat16 does not pay for products below a width of {HALF_WIDTH}"
    found = [name for name, has in HALF_INSTRUCTIONS.items() if has()]
    if found:
        return "bfloat16", f"this processor has {found[0]}; validation and the model stay float32"
    return "float32", "this processor has no bfloat16 instructions"


def _capability(name: str) -> Callable[[], bool]:
    """Whether the processor has some instructions; torch states them under private names, which may go."""
    return lambda: bool(getattr(torch.cpu, name, lambda: False)())


HALF_INSTRUCTIONS = {
    "AMX": _capability("_is_amx_tile_supported"),
    "AVX512-BF16": _capability("_is_avx512_bf16_supported"),
}
HALF_WIDTH = 128
"""Width from which on bfloat16 products are faster on a CPU with such instructions (decision 12)."""
