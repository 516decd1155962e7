"""The five tables of a run: read, filled in, and saved with the run; `run` carries them out.

    [data]       which corpora                       one of tasks/*/config.py
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

from transduce.config import Config, Table, merge, override, read_toml, write_toml
from transduce.data.config import DataConfig, PlainTextConfig, reads_once
from transduce.data.prepared import Prepared
from transduce.errors import MissingInput, SettingsError, brief, suggestion
from transduce.evaluation.metrics import METRICS
from transduce.inference.search.options import SearchOptions, generation_options
from transduce.models import catalog
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import SHARED
from transduce.storage.layout import RECIPE
from transduce.tasks.catalog import DEFAULT_BLOCK_SIZE, read_data_table
from transduce.tasks.initial_checkpoint import Origin, fit, habits, open_origin, peak_rate, settled
from transduce.tasks.language_modeling.defaults import advise_text, advise_text_tokenizer, measure
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.tasks.text_encoding.defaults import advise_reader, refuse_misreading, with_head
from transduce.tasks.translation.config import SpanCorruptionConfig
from transduce.tasks.translation.corpus import corpus_pairs
from transduce.tasks.translation.defaults import KINDS, Advice, advise, advise_going_on, advise_tokenizer, survey
from transduce.tasks.translation.span_corruption import largest_corrupted
from transduce.text.plain import read_documents
from transduce.text.tokenizer.special import SENTINELS
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.compatibility import outline
from transduce.training.config import LARGEST_MICRO_BATCH, TrainingConfig, default_micro_batch

TABLES = ("data", "tokenizer", "model", "training", "search")
CHOSEN = {"tokenizer", "model", "training"}
"""Tables that are chosen from the corpus where a recipe has none of them."""


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
        model = catalog.read_model_table(tables.get("model", {}), f"{where}: model")
        data = read_data_table(tables["data"], f"{where}: data")
        model = with_head(data, model, tables.get("model", {}), where)
        training = _usual_training(data) | tables.get("training", {})
        recipe = cls(
            data=_with_block(data, model, where),
            tokenizer=read_tokenizer_table(data, tables.get("tokenizer", {}), f"{where}: tokenizer"),
            model=model,
            training=TrainingConfig.from_table(training, f"{where}: training"),
            search=SearchOptions.from_table(_search(model, tables.get("search", {})), f"{where}: search"),
        )
        refuse_misreading(recipe.data, recipe.model, recipe.training, where)
        _refuse_mismatch(recipe, where)
        tied = getattr(recipe.model, "tied_embeddings", None)
        if tied in SHARED and not recipe.tokenizer.joint:
            raise SettingsError(
                f"{where}: model.tied_embeddings = '{tied}' needs one vocabulary for both sides; "
                "set tokenizer.joint = true or model.tied_embeddings = 'target'"
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


def read_tokenizer_table(data: DataConfig, table: Table, where: str) -> TokenizerConfig:
    """Read [tokenizer], which has marks for the spans that are left out where the corpus leaves some out."""
    usual = {"sentinels": SENTINELS} if _corrupts(data) and "folder" not in table else {}
    return TokenizerConfig.from_table(usual | table, where)


def _usual_training(data: DataConfig) -> Table:
    """What is usual for a kind of corpus, where it is not what is usual otherwise."""
    return {"label_smoothing": 0.0} if isinstance(data, PlainTextConfig | TextEncodingConfig) else {}


def _search(model: Config, wishes: Table) -> Table:
    """How a model is searched: as is usual for its kind, but for what is wished."""
    return generation_options(wishes) if catalog.is_language_model(model) else wishes


def _with_block(data: DataConfig, model: Config, where: str) -> DataConfig:
    """Say how plain text is cut, unless that is said."""
    if not isinstance(data, PlainTextConfig):
        return data
    most = _largest_block(data, model)
    if most is not None and most < 2:
        raise SettingsError(
            f"{where}: a model of {_limit(model)} positions reads too few tokens of plain text at a time to learn "
            f"anything of it; set model.max_positions to {4 if _corrupts(data) else 2} or more (256 is usual)"
        )
    return data.but(block_size=data.block_size or most or DEFAULT_BLOCK_SIZE)


def _corrupts(data: DataConfig) -> bool:
    return isinstance(data, SpanCorruptionConfig)


def _largest_block(data: DataConfig, model: Config) -> int | None:
    """The most tokens of a block that a model can read, whole or with spans taken out; None where nothing bounds it."""
    limit = _limit(model)
    return limit if limit is None or not _corrupts(data) else largest_corrupted(limit)


def _limit(model: Config) -> int | None:
    """The most tokens that a model can read and write at once; None where nothing bounds them."""
    built = outline(model, VocabularySizes(1, 1))
    return min((limit for limit in (built.max_source, built.max_target) if limit is not None), default=None)


def _refuse_mismatch(recipe: Recipe, where: str) -> None:
    """Say no to a model that cannot learn from such a corpus."""
    data, training = recipe.data, recipe.training
    if isinstance(data, TextEncodingConfig):
        return
    name, continues = catalog.name_of(recipe.model), catalog.is_language_model(recipe.model)
    reason = None
    if continues and not isinstance(data, PlainTextConfig):
        reason = f"{name} is a language model, and learns from plain text: data.train = {{text = 'corpus.txt'}}"
    elif continues and _corrupts(data):
        reason = f"data.objective makes pairs, and {name} reads no source; leave it out, or choose t5"
    elif isinstance(data, PlainTextConfig) and not continues and not _corrupts(data):
        reason = f"plain text is for a language model, as gpt, or for a {name} with data.objective = 'span_corruption'"
    elif isinstance(data, PlainTextConfig) and not recipe.tokenizer.joint:
        reason = "plain text has one side and needs one tokenizer; leave out tokenizer.joint = false"
    elif isinstance(data, PlainTextConfig) and training.metric != "loss":
        reason = f"training.metric = '{training.metric}' is for pairs; of plain text the loss is what is measured"
    elif training.metric not in (known := ("loss", *METRICS)):
        reason = f"training.metric = '{training.metric}' is for readers; pairs are measured by {', '.join(known)}"
    elif training.metric != "loss" and not training.decode_examples:
        reason = f"choosing by training.metric = '{training.metric}' needs translations; set decode_examples above 0"
    elif isinstance(data, PlainTextConfig) and training.bpe_dropout:
        reason = "training.bpe_dropout cuts pairs anew in every epoch, not plain text; leave it out"
    elif continues and (training.source_vectors or training.target_vectors):
        reason = f"source_vectors and target_vectors are for models with two sides, which {name} has not"
    elif (
        isinstance(data, PlainTextConfig)
        and (most := _largest_block(data, recipe.model)) is not None
        and (data.block_size or 0) > most
    ):
        reason = f"data.block_size = {data.block_size} is more than the model reads at once, {most}; change one of them"
    if reason is not None:
        raise SettingsError(f"{where}: {reason}")


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
    if tables.get("training", {}).get("initial_checkpoint") is not None:
        tables, reasons = _started(tables, where, prepared)
    elif not CHOSEN & given.keys():
        data = read_data_table(_table(tables, "data", where), f"{where}: data")
        if isinstance(data, TextEncodingConfig):
            advice = advise_reader(data.objective)
        elif isinstance(data, PlainTextConfig):
            advice = advise_text(_characters(data, prepared), tables.get("tokenizer"), _corrupts(data))
        else:
            texts, count = (_pairs(data), None) if prepared is None else (prepared.train.texts(), len(prepared.train))
            advice = advise(survey(texts, count), tables.get("tokenizer"))
        tables, reasons = _over(advice, tables, where)
    recipe = Recipe.from_tables(tables, where)
    return recipe, reasons


def choose_tokenizer(data: DataConfig, given: Table) -> tuple[Table, list[str]]:
    """Complete a table [tokenizer] as `read_recipe` does for a recipe of [data] alone; and say why.

    Who says what a token is has chosen; and standard input can be read once only, so that nothing is chosen by it.
    """
    if {*KINDS, "folder"} & given.keys():
        return given, []
    if isinstance(data, TextEncodingConfig):
        advice = Advice(advise_reader(data.objective).tables, ["WordPiece, as BERT has it"])
    elif any(map(reads_once, data.corpora)):
        return given, []
    elif isinstance(data, PlainTextConfig):
        advice = advise_text_tokenizer(_characters(data, None), given)
    else:
        advice = advise_tokenizer(survey(_pairs(data)), given)
    only = {"tokenizer": advice.tables["tokenizer"], "training": {}}
    tables, reasons = _over(Advice(only, advice.reasons), {"tokenizer": given}, "")
    return tables["tokenizer"], reasons


def _started(tables: Table, where: str, prepared: Prepared | None) -> tuple[Table, list[str]]:
    """Fill in the tables of a run that starts from another; what a saved recipe says already is not chosen again."""
    usual = {name: TrainingConfig.model_fields[name].default for name in ("keep_last", "average_checkpoints")}
    given = _yielding(usual, tables["training"]) | tables["training"]
    training = TrainingConfig.from_table(given, f"{where}: training")
    assert training.initial_checkpoint is not None
    origin = open_origin(training.initial_checkpoint)
    tables = settled(origin, tables, where, prepared is not None)
    if {"learning_rate", "warmup", "updates", "schedule"} <= tables["training"].keys():
        return tables, []
    data = read_data_table(_table(tables, "data", where), f"{where}: data")
    if isinstance(data, TextEncodingConfig):
        advice = advise_reader(data.objective)
        chosen = _yielding(advice.tables["training"], tables["training"])
        return merge({"training": chosen}, tables), advice.reasons[1:]
    advice = advise_going_on(*_amount(data, prepared, origin), *peak_rate(origin), tables["training"])
    chosen = _yielding({**advice.tables["training"], **habits(origin)}, tables["training"])
    tables = merge({"training": chosen}, tables)
    return tables, [*fit(origin, _looked_at(data, prepared)), *advice.reasons]


def _amount(data: DataConfig, prepared: Prepared | None, origin: Origin) -> tuple[str, float]:
    """Say how much there is to learn from, in words and in target tokens, about."""
    if isinstance(data, PlainTextConfig):
        characters = _characters(data, prepared)
        by_characters = origin.found.target_tokenizer.kind in ("character", "byte")
        return f"{characters:,} characters of text", characters / (1 if by_characters else 4)
    texts, count = (_pairs(data), None) if prepared is None else (prepared.train.texts(), len(prepared.train))
    found = survey(texts, count)
    return f"{found.pairs:,} training pairs", found.pairs * (found.target.characters / 4 + 1)


def _looked_at(data: DataConfig, prepared: Prepared | None) -> Iterator[tuple[str, str]]:
    """The text that a vocabulary is judged by; plain text has no source, and once prepared is not kept."""
    if not isinstance(data, PlainTextConfig):
        return _pairs(data) if prepared is None else prepared.train.texts()
    files = data.corpora if prepared is None else ()
    return (("", piece.text) for file in files for piece in read_documents(file))


def _refuse_foreign(tables: Mapping[str, Any], where: str) -> None:
    for name, table in tables.items():
        if name not in TABLES:
            raise SettingsError(f"{where} has no table '{name}'{suggestion(name, TABLES)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{where}: '{name}' must be a table, not {table!r}")


def _refuse_stdin(data: DataConfig) -> None:
    if any(map(reads_once, data.corpora)):
        raise SettingsError(
            "settings are chosen by reading the corpus, and standard input or a pipe can be read once only; "
            "give files, or a recipe with the tables tokenizer, model and training"
        )


def _characters(data: DataConfig, prepared: Prepared | None) -> int:
    """How much plain text there is, up to a bound."""
    if prepared is not None and prepared.report.train.text is not None:
        return prepared.report.train.text.characters
    _refuse_stdin(data)
    return measure(piece.text for file in data.corpora for piece in read_documents(file))


def _pairs(data: DataConfig) -> Iterator[tuple[str, str]]:
    _refuse_stdin(data)
    return ((pair.source, pair.target) for pair in corpus_pairs(data.corpora))


def _table(tables: Table, name: str, where: str, otherwise: Table | None = None) -> Table:
    table = tables.get(name, otherwise)
    if not isinstance(table, dict):
        raise SettingsError(f"{where} needs a table [{name}]")
    return table


def _over(advice: Advice, given: Table, where: str) -> tuple[Table, list[str]]:
    """Lay what a person gave over what was chosen; a model or kind of token of theirs replaces the chosen whole.

    A preset that has one matrix for both sides gives way where there are two vocabularies. Returns the reasons too.
    """
    chosen, reasons = advice.tables, advice.reasons
    model, tokenizer = given.get("model", {}), given.get("tokenizer", {})
    if {"name", "preset"} & model.keys():
        chosen = {**chosen, "model": {}}
        shares = getattr(catalog.read_model_table(model, f"{where}: model"), "tied_embeddings", None) in SHARED
        if advice.tables["model"].get("tied_embeddings") == "target" and shares and "tied_embeddings" not in model:
            chosen["model"] = {"tied_embeddings": "target"}
            reasons = [
                *reasons,
                "two vocabularies: the source has a matrix of its own (model.tied_embeddings = 'target')",
            ]
    if {*KINDS, "folder"} & tokenizer.keys():
        chosen = {**chosen, "tokenizer": {}}
    chosen = {**chosen, "training": _yielding(chosen["training"], given.get("training", {}))}
    instead = [
        f"{table}.{name} = {brief(value)}"
        for table, settings in chosen.items()
        for name, value in given.get(table, {}).items()
        if name in settings and settings[name] != value
    ]
    return merge(chosen, given), [*reasons, *([f"but, as was asked for: {', '.join(instead)}"] if instead else [])]


def _yielding(chosen: Table, given: Table) -> Table:
    """Take back what was chosen of the training where it cannot go with what a person gave."""
    yielding = dict(chosen)
    if given.get("optimizer", "adamw") != "adamw":
        yielding.pop("weight_decay", None)
    if "average_checkpoints" in chosen and isinstance(kept := given.get("keep_last"), int):
        yielding["average_checkpoints"] = min(chosen["average_checkpoints"], kept)
    if "keep_last" in chosen and isinstance(averaged := given.get("average_checkpoints"), int):
        yielding["keep_last"] = max(chosen["keep_last"], averaged)
    return yielding


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
    width: int = getattr(recipe.model, "model_dim", 0) or getattr(recipe.model, "hidden_dim", LARGEST_MICRO_BATCH)
    slices = recipe.training.micro_batch_tokens or default_micro_batch(
        width, precision == "bfloat16", recipe.training.update_tokens
    )
    return recipe.but_training(threads=threads, device=device, precision=precision, micro_batch_tokens=slices)
