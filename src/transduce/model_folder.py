"""A model folder on disk ⇄ model, settings, tokenizers.

    config.json              format, model name, settings, vocabulary sizes, languages
    model.safetensors        weights by name; a matrix with two uses stands there once
    tokenizer.json           or source.tokenizer.json and target.tokenizer.json
    README.md                the model's card: data, settings, scores
    manifest.json            size and SHA-256 of every other file, written last

No pickle, no code: safetensors, JSON and text. safetensors accepts flipped bits in its data, so the manifest
is what detects them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from transduce.config import Config, Table
from transduce.errors import MissingInput, ModelFolderError, SettingsError
from transduce.models import catalog
from transduce.models.interface import AnyTransducer, EncoderModel, Model, Transducer, VocabularySizes
from transduce.storage.atomic import atomic_folder
from transduce.storage.json_file import read_json, write_json
from transduce.storage.layout import (
    CONFIG,
    FORMAT,
    MANIFEST,
    MODEL,
    MODEL_CARD,
    MODEL_KIND,
    RECIPE,
    SOURCE_TOKENIZER,
    TARGET_TOKENIZER,
    TOKENIZER,
    WEIGHTS,
)
from transduce.storage.manifest import check_format, verify, write_manifest
from transduce.text.tokenizer import AnyTokenizer, load_tokenizer


@dataclass(frozen=True)
class ModelFolder:
    """All that a model folder holds, in memory."""

    model: Model
    config: Config
    source_tokenizer: AnyTokenizer
    target_tokenizer: AnyTokenizer
    """The same object as the source's when one serves both."""
    notes: Table = field(default_factory=dict)
    """Languages, search defaults and whatever else belongs to the model but not to its arithmetic."""

    @property
    def task(self) -> str:
        """translation, language_modeling or text_encoding."""
        return catalog.task_of(self.config)

    @property
    def transducer(self) -> AnyTransducer:
        """The model, if it is one that writes."""
        if not isinstance(self.model, Transducer):
            raise SettingsError(
                f"a {catalog.name_of(self.config)} reads and does not write; ask it with `transduce read` or "
                "`transduce embed`, and see how good it is with `transduce evaluate`"
            )
        return self.model

    @property
    def reader(self) -> EncoderModel:
        """The model, if it is one that reads."""
        if not isinstance(self.model, EncoderModel):
            raise SettingsError(
                f"a {catalog.name_of(self.config)} writes and is not asked about texts; use `transduce translate`"
            )
        return self.model


def save_model(folder: Path, contents: ModelFolder, card: str) -> None:
    """Write a model folder, whole or not at all."""
    with atomic_folder(folder) as temporary:
        sizes = contents.model.sizes
        write_json(
            temporary / CONFIG,
            {
                "format": FORMAT,
                "task": contents.task,
                "model": catalog.name_of(contents.config),
                "settings": contents.config.to_table(),
                "vocabulary": {"source": sizes.source, "target": sizes.target},
                "notes": contents.notes,
            },
        )
        save_weights(temporary / WEIGHTS, weights_of(contents.model))
        save_tokenizers(temporary, contents.source_tokenizer, contents.target_tokenizer)
        (temporary / MODEL_CARD).write_text(card, encoding="utf-8")
        write_manifest(temporary, MODEL_KIND)


@dataclass(frozen=True)
class Description:
    """All that a model folder holds but its weights."""

    place: Path
    """The model folder itself, where a run was named."""
    config: Config
    sizes: VocabularySizes
    source_tokenizer: AnyTokenizer
    target_tokenizer: AnyTokenizer
    notes: Table


def describe_model(folder: Path, hash_up_to: int | None = None) -> Description:
    """Read all but the weights of a model folder, or of the model of a run folder.

    Every file is compared with the manifest, those of more than `hash_up_to` bytes by their size alone.
    """
    folder = find_model(folder)
    listed = verify(folder, MODEL_KIND, hash_up_to)["files"]
    for name in (CONFIG, WEIGHTS, *([TOKENIZER] if TOKENIZER in listed else [SOURCE_TOKENIZER, TARGET_TOKENIZER])):
        if name not in listed:  # strangers may stand there, but nothing is read that the manifest does not vouch for
            raise ModelFolderError(f"{folder / MANIFEST}: does not list {name}; copy the folder again")
    table = read_json(folder / CONFIG)
    config, sizes = _read_config(table, folder / CONFIG)
    source, target = load_tokenizers(folder, joint=TOKENIZER in listed)
    if (source.size, target.size) != sizes:
        raise ModelFolderError(
            f"{folder}: the model knows {sizes.source:,} and {sizes.target:,} tokens but the tokenizers "
            f"{source.size:,} and {target.size:,}; load all files from one folder"
        )
    notes = table.get("notes", {})
    return Description(folder, config, sizes, source, target, notes if isinstance(notes, dict) else {})


def load_model(folder: Path) -> ModelFolder:
    """Read a model folder, or the model of a run folder; anything damaged or foreign is refused by name."""
    found = describe_model(folder)
    folder, config, sizes = found.place, found.config, found.sizes
    weights = load_weights(folder / WEIGHTS)
    try:
        with torch.device("meta"):  # settings may ask for more memory than there is: shapes are compared without any
            _check_weights(weights_of(catalog.build(config, sizes)), weights, folder / WEIGHTS)
        model = catalog.build(config, sizes)
    except SettingsError as error:
        raise ModelFolderError(f"{folder / CONFIG}: {error}") from None
    put_weights(model, weights, folder / WEIGHTS)
    return ModelFolder(model.eval(), config, found.source_tokenizer, found.target_tokenizer, found.notes)


def find_model(folder: Path) -> Path:
    """Return the model folder that a person means: the folder itself, or the model inside a run."""
    try:
        there = folder.is_dir()
    except OSError as error:
        raise MissingInput(f"{folder}: cannot be read ({error.strerror}); check the path") from None
    if not there:
        raise MissingInput(f"{folder}: there is no such folder; give a run or a model folder")
    if (folder / CONFIG).exists():
        return folder
    if (folder / MODEL / CONFIG).exists():
        return folder / MODEL
    if (folder / RECIPE).exists():
        raise ModelFolderError(
            f"{folder}: this run has no model yet; go on with `transduce train --resume {folder}`, or make one of its "
            f"checkpoints with `transduce train --finish {folder}`"
        )
    raise ModelFolderError(f"{folder}: is neither a run nor a model folder (it has no {CONFIG})")


def weights_of(model: Model) -> dict[str, Tensor]:
    """Return every parameter once, by name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def put_weights(model: Model, weights: dict[str, Tensor], where: Path) -> None:
    """Copy weights into a model after checking that names, shapes and values are the model's own."""
    mine = weights_of(model)
    _check_weights(mine, weights, where)
    for name, weight in weights.items():
        if not bool(weight.isfinite().all()):
            raise ModelFolderError(
                f"{where}: the weight '{name}' holds values that are not finite, so its training has failed; "
                "train again with a lower training.learning_rate or with training.max_grad_norm"
            )
    with torch.no_grad():
        for name, weight in weights.items():
            mine[name].copy_(weight)


def _check_weights(mine: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: Path) -> None:
    """Refuse weights that are not the model's own by name, shape and type."""
    if missing := sorted(mine.keys() - weights.keys()):
        raise ModelFolderError(f"{where}: the weight '{missing[0]}' is missing ({len(missing)} in all)")
    if foreign := sorted(weights.keys() - mine.keys()):
        raise ModelFolderError(f"{where}: the weight '{foreign[0]}' is not part of this model ({len(foreign)} in all)")
    for name, weight in weights.items():
        if weight.shape != mine[name].shape or not weight.is_floating_point():
            raise ModelFolderError(
                f"{where}: the weight '{name}' has shape {tuple(weight.shape)} of {weight.dtype}, "
                f"the model's is {tuple(mine[name].shape)} of {mine[name].dtype}"
            )


def save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors by name; a full disk is an OSError, as for any other file."""
    try:
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))  # the library keeps the system's number in its message only
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from None


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name."""
    try:
        weights: dict[str, Tensor] = load_file(path)
    except OSError as error:
        raise ModelFolderError(f"{path}: cannot be read ({error.strerror or error})") from None
    except SafetensorError as error:
        raise ModelFolderError(f"{path}: is not a safetensors file ({error})") from None
    return weights


def save_tokenizers(folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> None:
    """Write one file for a joint tokenizer, two otherwise."""
    if source is target or source.to_json() == target.to_json():
        source.save(folder / TOKENIZER)
    else:
        source.save(folder / SOURCE_TOKENIZER)
        target.save(folder / TARGET_TOKENIZER)


def load_tokenizers(folder: Path, joint: bool) -> tuple[AnyTokenizer, AnyTokenizer]:
    """Read what `save_tokenizers` wrote."""
    if joint:
        return load_tokenizer(folder / TOKENIZER).sides()
    return load_tokenizer(folder / SOURCE_TOKENIZER), load_tokenizer(folder / TARGET_TOKENIZER)


def _read_config(table: Table, where: Path) -> tuple[Config, VocabularySizes]:
    check_format(where.parent, table)
    vocabulary: Any = table.get("vocabulary")
    settings: Any = table.get("settings")
    try:
        sizes = VocabularySizes(int(vocabulary["source"]), int(vocabulary["target"]))
        config = catalog.entry(str(table.get("model"))).config.from_table(settings, str(where))
    except (TypeError, KeyError, ValueError, OverflowError):
        raise ModelFolderError(f"{where}: lacks its vocabulary sizes or settings; copy the folder again") from None
    except SettingsError as error:
        raise ModelFolderError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from None
    if not all(0 < size <= 10_000_000 for size in sizes):
        raise ModelFolderError(
            f"{where}: vocabularies of {sizes.source:,} and {sizes.target:,} tokens are not possible"
        )
    return config, sizes
