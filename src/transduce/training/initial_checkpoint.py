"""Fine-tuning: the model folder or run that a new run starts from, and what follows from it for the recipe.

The model's settings and tokenizers are those of the initial checkpoint; the training settings are chosen for a model
that has been trained before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from transduce.config import Table, merge, read_toml
from transduce.data.prepared import GivenTokenizers
from transduce.errors import SettingsError
from transduce.model_folder import Description, describe_model, find_model
from transduce.models import catalog
from transduce.storage.layout import DATA, MANIFEST, MODEL, RECIPE
from transduce.storage.manifest import sha256
from transduce.text.language import ModelLanguages, model_languages
from transduce.text.tokenizer import is_joint
from transduce.text.tokenizer.tokenizer import WITH_FOLDER, TokenizerConfig

SMALL_FILE = 16 * 2**20
"""Bytes up to which a file's hash is checked when only settings are needed; loading the weights checks all of them."""
HEAD_SETTINGS = ("head", "next_sentence", "num_labels", "label_tokens")
"""Settings of a text encoder's head, which is new for every objective."""
KEPT_SETTINGS = ("label_smoothing", "bpe_dropout", "r_drop", "ema_decay", "weight_decay", "optimizer", "betas")
"""Settings of [training] that fine-tuning takes over from the run that made the model."""


@dataclass(frozen=True)
class InitialCheckpoint:
    """A model folder to start from, without its weights."""

    name: str
    """The folder as the user named it."""
    found: Description
    recipe: Table
    """The tables of the run that made it; empty if unknown."""
    data: Path | None
    """The prepared corpus of that run, if it still exists."""

    @classmethod
    def open(cls, name: str) -> InitialCheckpoint:
        """Open a model folder, or the model of a run."""
        found = describe_model(Path(name), SMALL_FILE)
        run = found.place.parent if found.place.name == MODEL and (found.place.parent / RECIPE).is_file() else None
        data = None if run is None or not (run / DATA / MANIFEST).is_file() else run / DATA
        return cls(name, found, {} if run is None else read_toml(run / RECIPE), data)

    @property
    def joint(self) -> bool:
        """Whether both sides share one tokenizer."""
        return is_joint(self.found.source_tokenizer, self.found.target_tokenizer)

    @property
    def tokenizers(self) -> GivenTokenizers:
        """Its tokenizers, for preparing a corpus."""
        source, target, tags = self.found.source_tokenizer, self.found.target_tokenizer, self.spoken.tags
        if tags is None:
            return GivenTokenizers(source, target)
        return GivenTokenizers(
            source.without_languages(),
            source.without_languages() if source is target else target.without_languages(),
            tags,
        )

    @property
    def spoken(self) -> ModelLanguages:
        """The languages that the model can be asked for."""
        found = self.found
        return model_languages(found.notes, found.source_tokenizer, found.target_tokenizer, self.name)

    @property
    def kept_settings(self) -> Table:
        """The settings of [training] that fine-tuning takes over."""
        before = self.recipe.get("training", {})
        return {name: before[name] for name in KEPT_SETTINGS if name in before}

    def peak_rate(self) -> tuple[float, str]:
        """Return the learning rate for fine-tuning and why: a tenth of the one that trained the model.

        A model that was itself fine-tuned was trained with such a rate already.
        """
        before = self.recipe.get("training", {})
        rate, warmup = before.get("learning_rate"), before.get("warmup", 1)
        width = int(getattr(self.found.config, "model_dim", 0) or getattr(self.found.config, "hidden_dim", 512))
        if not isinstance(rate, float | int):
            default = 2e-3 if width <= 128 else 1e-3 if width <= 256 else 7e-4
            return default / 10, f"a tenth of the default for a model of width {width}"
        if before.get("schedule", "noam") == "noam":
            rate = rate / math.sqrt(width * max(1, warmup))
        if before.get("initial_checkpoint"):
            return float(rate), f"the one that {self.name} was fine-tuned with"
        return rate / 10, f"a tenth of the {rate:.2g} that {self.name} was trained with"

    def complete(self, tables: Table, where: str, prepared: bool = False) -> Table:
        """Fill in a recipe's tables with what the checkpoint decides; settings that contradict it are errors.

        A prepared corpus has its tokenizers already: `prepared` leaves [tokenizer] as it is.
        """
        search, tables = self.found.notes.get("search"), dict(tables)
        if "search" not in tables and isinstance(search, dict):
            tables["search"] = search
        tables["model"] = self._model_table(tables.get("model", {}), where)
        if not prepared:
            tables["tokenizer"] = self._tokenizer_table(tables.get("tokenizer", {}), where)
        return tables

    def _model_table(self, given: Table, where: str) -> Table:
        """Return the checkpoint's [model] with the dropout rates that were given; nothing else may differ."""
        mine = self.found.config
        theirs = catalog.read_model_table(merge({"name": catalog.name_of(mine)}, given), f"{where}: model")
        if type(theirs) is not type(mine):
            raise SettingsError(
                f"{where}: [model] is a {catalog.name_of(theirs)}, but {self.name} holds a {catalog.name_of(mine)}; "
                "leave the table out"
            )
        named = type(mine).model_fields if "preset" in given else given.keys() & type(mine).model_fields.keys()
        changes = {name: getattr(theirs, name) for name in named if getattr(theirs, name) != getattr(mine, name)}
        for name, value in changes.items():
            if not name.endswith("dropout") and name not in HEAD_SETTINGS:
                raise SettingsError(
                    f"{where}: model.{name} = {value!r}, but the model in {self.name} has {getattr(mine, name)!r}; "
                    "leave it out: only dropout rates can be changed"
                )
        table = {"name": catalog.name_of(mine), **mine.but(**changes).to_table()}
        return {name: value for name, value in table.items() if name not in HEAD_SETTINGS or name in given}

    def _tokenizer_table(self, given: Table, where: str) -> Table:
        for name in given:
            if name not in WITH_FOLDER and name in TokenizerConfig.model_fields:
                raise SettingsError(
                    f"{where}: tokenizer.{name}: fine-tuning keeps the tokenizers of {self.name}; leave it out "
                    "(--extend-vocabulary N adds tokens)"
                )
        return {**given, "folder": given.get("folder", self.name), "joint": self.joint}


def given_tokenizers(config: TokenizerConfig) -> GivenTokenizers | None:
    """Open the tokenizers of `tokenizer.folder`; None where the recipe trains new ones."""
    return None if config.folder is None else InitialCheckpoint.open(config.folder).tokenizers


def folder_fingerprint(name: str) -> str:
    """Return the SHA-256 of a model folder's manifest."""
    return sha256(find_model(Path(name)) / MANIFEST)
