"""Initial weights from a model folder or from word vectors, and frozen weights.

A model that writes takes all weights of the folder; a text encoder, whose head is new, those that match by name and
shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.config import Table, merge, read_toml
from transduce.data.prepared import GivenTokenizers
from transduce.errors import DataError, MissingInput, ModelFolderError, SettingsError, suggestion
from transduce.model_folder import Description, describe_model, find_model, load_weights
from transduce.models import catalog
from transduce.nn.embedding import Embedding
from transduce.storage.layout import DATA, MANIFEST, MODEL, MODEL_KIND, RECIPE, WEIGHTS
from transduce.storage.manifest import sha256, verify
from transduce.text.corpus import read_lines
from transduce.text.language import ModelLanguages, model_languages
from transduce.text.lines import is_stream
from transduce.text.tokenizer import AnyTokenizer, is_joint
from transduce.text.tokenizer.extension import made_of
from transduce.text.tokenizer.tokenizer import SPACE_MARK, WITH_FOLDER, TokenizerConfig

SMALL_FILE = 16 * 2**20
"""Bytes up to which a file's hash is checked when only settings are needed; loading the weights checks all of them."""
HEAD_SETTINGS = ("head", "next_sentence", "num_labels", "label_tokens")
"""Settings of a text encoder's head, which is new for every objective."""
KEPT_SETTINGS = (
    *("label_smoothing", "bpe_dropout", "r_drop", "guided_alignment"),
    *("ema_decay", "weight_decay", "optimizer", "betas"),
)
"""Settings of [training] that fine-tuning takes over from the run that made the model."""


@dataclass(frozen=True)
class InitialCheckpoint:
    """The model folder or run that a new run is fine-tuned from, without its weights.

    Its settings and tokenizers become those of the new run; the training settings are chosen for fine-tuning.
    """

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
        source, target, tags = self.found.source_tokenizer, self.found.target_tokenizer, self.languages.tags
        if tags is None:
            return GivenTokenizers(source, target)
        return GivenTokenizers(
            source.without_languages(),
            source.without_languages() if source is target else target.without_languages(),
            tags,
        )

    @property
    def languages(self) -> ModelLanguages:
        """The languages that the model translates between."""
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
            rate = rate / math.sqrt(width * max(1, warmup))  # a number of updates in every saved recipe
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


# Loading and freezing weights.

MAX_NAMED = 5
"""Maximum number of weights that a message names."""


@dataclass(frozen=True)
class LoadedWeights:
    """Which weights of a model were loaded; names and order as in `named_parameters`."""

    loaded: tuple[str, ...]
    """Weights of the model that were found with the model's shape."""
    new: tuple[str, ...]
    """Weights of the model that were not found: they keep their random initialisation."""
    reshaped: tuple[str, ...]
    """Weights that were found with another shape: they keep their random initialisation too."""
    unused: tuple[str, ...]
    """Weights that were found and are not part of the model, by name."""

    def __str__(self) -> str:
        """Summarise in one line."""
        total = len(self.loaded) + len(self.new) + len(self.reshaped)
        parts = [f"{len(self.loaded):,} of {total:,} weights loaded"]
        for names, what in ((self.new, "new"), (self.reshaped, "of another shape"), (self.unused, "not used")):
            if names:
                named = ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
                parts.append(f"{len(names):,} {'are' if len(names) > 1 else 'is'} {what} ({named})")
        return "; ".join(parts)


def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> LoadedWeights:
    """Copy the weights whose names and shapes are the model's own; return which were loaded and which are new."""
    mine = dict(model.named_parameters())
    fits = [name for name in mine if name in weights and weights[name].shape == mine[name].shape]
    for name in fits:
        if not bool(weights[name].isfinite().all()):
            raise ModelFolderError(f"the weight '{name}' holds values that are not finite; start from another folder")
    with torch.no_grad():
        for name in fits:
            mine[name].copy_(weights[name])
    return LoadedWeights(
        loaded=tuple(fits),
        new=tuple(name for name in mine if name not in weights),
        reshaped=tuple(name for name in mine if name in weights and name not in fits),
        unused=tuple(sorted(weights.keys() - mine.keys())),
    )


def folder_weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights of a model folder, or of the model in a run, after verifying the folder."""
    place = find_model(folder)
    if WEIGHTS not in verify(place, MODEL_KIND)["files"]:
        raise ModelFolderError(f"{place}: its manifest does not list {WEIGHTS}; copy the folder again")
    return load_weights(place / WEIGHTS)


def load_matching_weights(model: nn.Module, folder: Path) -> LoadedWeights:
    """Load the weights of a folder that match the model by name and shape; at least one must."""
    loaded = copy_weights(model, folder_weights(folder))
    if not loaded.loaded:
        raise ModelFolderError(f"{folder}: none of its weights matches this model by name and shape; {loaded}")
    return loaded


def load_all_weights(model: nn.Module, folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> int:
    """Load all weights of a folder into a model; return how many tokens the model has besides the folder's.

    `source` and `target` are the model's tokenizers: the folder's, or the same with tokens added. The vector of an
    added token is the mean of those of the tokens that spelled it before.
    """
    weights, more = folder_weights(folder), added_tokens(folder, source, target)
    added = len(more["source"]) if source is target else len(more["source"]) + len(more["target"])
    grown = 0
    for name, weight in model.named_parameters():
        given, parts = weights.get(name), more["source" if name.startswith("source_embedding.") else "target"]
        if given is not None and parts and len(weight) == len(given) + len(parts):
            weights[name] = torch.cat([given, torch.stack([given[part].mean(dim=0) for part in parts])])
            grown += 1
    if added and not grown:  # e.g. one-hot inputs, whose width is the vocabulary
        raise SettingsError(f"{folder}: this kind of model has no token embeddings, so no tokens can be added")
    loaded = copy_weights(model, weights)
    if loaded.new or loaded.reshaped or loaded.unused:
        raise ModelFolderError(f"{folder}: its weights do not match this model: {loaded}")
    return added


def added_tokens(folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> dict[str, list[list[int]]]:
    """For each side and each token besides the folder's, the tokens that spelled it before."""
    old = describe_model(folder, hash_up_to=0)
    try:
        return {"source": made_of(old.source_tokenizer, source), "target": made_of(old.target_tokenizer, target)}
    except ValueError:
        raise SettingsError(
            f"{folder}: the corpus was not tokenised by this folder's tokenizers; prepare it with "
            f"tokenizer.folder = '{folder}'"
        ) from None


def freeze(model: nn.Module, patterns: Iterable[str]) -> list[str]:
    """Freeze the weights whose names match a shell pattern (`encoder.*`); return their names.

    A tied weight has two names, and either of them freezes it. A pattern that matches nothing is an error, and so are
    patterns that leave nothing to train.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        fitting = [weight for name, weight in named if fnmatchcase(name, pattern)]
        if not fitting:
            raise SettingsError(f"training.freeze: no weight matches '{pattern}'{suggestion(pattern, _modules(named))}")
        for weight in fitting:
            weight.requires_grad_(False)
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    if len(frozen) == sum(1 for _ in model.parameters()):
        raise SettingsError("training.freeze: every weight is frozen, and nothing is left to train; freeze fewer")
    return frozen


def _modules(named: Iterable[tuple[str, Tensor]]) -> set[str]:
    """Patterns that a user may have meant: everything below a top-level module."""
    return {f"{name.split('.')[0]}.*" for name, _ in named}


# Pretrained vectors: a word2vec or GloVe text file.


def vectors_fingerprint(path: str) -> str:
    """Return the SHA-256 of a file of vectors."""
    if is_stream(path):
        raise SettingsError(f"{path}: word vectors are read twice, but a pipe can be read only once; give a file")
    try:
        return sha256(Path(path))
    except OSError as error:
        raise MissingInput(f"{path}: cannot be read ({error.strerror}); check the path") from None


def start_from_vectors(embedding: Embedding, tokenizer: AnyTokenizer, path: str) -> int:
    """Copy the vectors of the tokens that a file has; return how many it has.

    The file has a word and its numbers on each line, separated by spaces; a first line of two numbers (word2vec)
    is skipped. A piece is looked up without its space marker. The model uses a vector as it is in the file: it is
    divided by the embedding's own scale.
    """
    places: dict[str, list[int]] = {}
    for token, piece in enumerate(tokenizer.pieces(range(tokenizer.size))):
        places.setdefault(piece.removeprefix(SPACE_MARK), []).append(token)
    dim = embedding.weight.shape[1]
    found: set[int] = set()
    with torch.no_grad():
        for number, line in enumerate(read_lines(path), start=1):
            word, *numbers = line.rstrip(" ").rsplit(" ", dim)  # some files have words with spaces in them
            if number == 1 and len(numbers) == 1:
                continue
            if len(numbers) != dim or (_is_number(word.rpartition(" ")[2]) and " " in word):
                word, *numbers = line.rstrip(" ").split(" ")
                raise DataError(
                    f"{path}:{number}: has {len(numbers)} numbers for '{word[:40]}', but the embedding is {dim} wide; "
                    "use a file of that width or change model.model_dim"
                )
            for token in places.get(word, ()):
                embedding.weight[token] = _vector(numbers, f"{path}:{number}") / embedding.scale
                found.add(token)
    if not found:
        raise DataError(f"{path}: has none of the {tokenizer.size:,} tokens; is it the right language?")
    return len(found)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _vector(numbers: list[str], where: str) -> torch.Tensor:
    try:
        vector = torch.tensor([float(number) for number in numbers])
    except ValueError:
        raise DataError(f"{where}: not all of its values are numbers") from None
    if not bool(vector.isfinite().all()):
        raise DataError(f"{where}: not all of its values are finite")
    return vector
