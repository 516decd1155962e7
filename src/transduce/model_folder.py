"""A model folder on disk <-> model, settings, tokenizers.

    config.json              format, task, model name, settings, vocabulary sizes, languages, search defaults
    model.safetensors        weights by name; a shared matrix is stored once
    tokenizer.json           or source.tokenizer.json and target.tokenizer.json
    README.md                the model card: data, settings, scores
    manifest.json            size and SHA-256 of every other file, written last

No pickle, no code: safetensors, JSON and text. safetensors accepts flipped bits in its data; the manifest detects them.
A folder of format 2 must load forever: tests/unit/stored holds one of each task.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from transduce.config import Config, Table
from transduce.errors import MissingInput, ModelFolderError, SettingsError, brief
from transduce.models import catalog
from transduce.models.guided_alignment import cross_attentions
from transduce.models.interface import AnyTransducer, EncoderModel, Model, VocabularySizes
from transduce.storage.atomic import atomic_folder, read_json, write_json
from transduce.storage.checkpoints import SavedCheckpoints
from transduce.storage.hub import is_hub_name
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
from transduce.storage.manifest import check_format, check_hash, verify, write_manifest
from transduce.storage.untrusted import FLOATING, SafetensorsHeader, TensorEntry, read_regular
from transduce.text.tokenizer import AnyTokenizer, load_tokenizer

HASHED_FIRST = 64 * 2**20
"""Files up to this size are hashed before anything else; larger ones once their sizes are known to fit the config."""
FEW_TENSORS = 1000
"""So many tensors are read from a header, even if the model has fewer, to say which one is unexpected."""
LARGEST_TABLES = 2**28
"""Bytes of tables that a model computes and does not store, such as sinusoids, for weights of any size."""
MAX_VOCABULARY = 2_000_000
"""Largest vocabulary of a model; the largest public ones have a million tokens."""
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
"""Dtypes of weights, by their names in a header."""
MAX_CARD_BYTES = 2**20
CTRANSLATE2_WEIGHTS, ONNX_GRAPHS = "model.bin", ("encoder.onnx", "model.onnx")
RENAMED_NOTES = {"opens_with": "prompt_start"}
"""Notes that the first folders of format 2 have under another name."""


@dataclass(frozen=True)
class ModelFolder:
    """A model folder in memory."""

    model: Model
    config: Config
    source_tokenizer: AnyTokenizer
    target_tokenizer: AnyTokenizer
    """The same object as the source's if both sides share one."""
    notes: Table = field(default_factory=dict)
    """Languages, search defaults, labels: what belongs to the model besides its settings and weights."""
    card: str = ""
    """The model card that it was loaded with."""

    @property
    def task(self) -> str:
        """translation, language_modeling or text_encoding."""
        return catalog.task_of(self.config)

    @property
    def transducer(self) -> AnyTransducer:
        """The model, if it generates text."""
        if not self.model.has_target:
            raise SettingsError(
                f"a {catalog.name_of(self.config)} model does not generate text; use `transduce predict`, "
                "`transduce embed` or `transduce evaluate`"
            )
        return cast("AnyTransducer", self.model)

    @property
    def encoder(self) -> EncoderModel:
        """The model, if it encodes text."""
        if self.model.has_target:
            use = "generate" if self.task == "language_modeling" else "translate"
            raise SettingsError(
                f"a {catalog.name_of(self.config)} model generates text and has no labels to predict; "
                f"use `transduce {use}`"
            )
        return cast("EncoderModel", self.model)


def save_model(folder: Path, contents: ModelFolder, card: str) -> None:
    """Write a model folder atomically, with its model card."""
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
    """A model folder without its weights."""

    place: Path
    """The model folder itself, also if a run folder was given."""
    config: Config
    sizes: VocabularySizes
    source_tokenizer: AnyTokenizer
    target_tokenizer: AnyTokenizer
    notes: Table


def describe_model(folder: Path, hash_up_to: int | None = None) -> Description:
    """Read all but the weights of a model folder, or of the model in a run folder.

    Every file is checked against the manifest, those of more than `hash_up_to` bytes by their size alone. The folder
    may be a stranger's: sizes are compared before anything large is read or hashed.
    """
    folder = find_model(folder)
    manifest = verify(folder, MODEL_KIND, HASHED_FIRST if hash_up_to is None else min(HASHED_FIRST, hash_up_to))
    listed = manifest["files"]
    for name in (CONFIG, WEIGHTS, *([TOKENIZER] if TOKENIZER in listed else [SOURCE_TOKENIZER, TARGET_TOKENIZER])):
        if name not in listed:  # there may be other files, but only those of the manifest are read
            raise ModelFolderError(f"{folder / MANIFEST}: does not list {name}; copy the folder again")
    table = read_json(folder / CONFIG)
    config, sizes = _read_config(table, folder / CONFIG)
    _check_header(folder, config, sizes)
    source, target = load_tokenizers(folder, TOKENIZER in listed, sizes)
    if (source.size, target.size) != sizes:
        raise ModelFolderError(
            f"{folder}: the model vocabularies have {sizes.source:,} and {sizes.target:,} tokens but the tokenizers "
            f"{source.size:,} and {target.size:,}; copy all files from the same folder"
        )
    for name in listed:
        size = (folder / name).stat().st_size
        if size > HASHED_FIRST and (hash_up_to is None or size <= hash_up_to):
            check_hash(folder, name, manifest)
    return Description(folder, config, sizes, source, target, _read_notes(table.get("notes")))


def _read_notes(found: Any) -> Table:
    notes: Table = found if isinstance(found, dict) else {}
    return {RENAMED_NOTES.get(name, name): note for name, note in notes.items()}


def load_model(folder: Path) -> ModelFolder:
    """Load a model folder, or the model in a run folder; an error names the file that is damaged or foreign."""
    found = describe_model(folder)
    folder, config, sizes = found.place, found.config, found.sizes
    weights = load_weights(folder / WEIGHTS)
    model = catalog.build(config, sizes)  # `describe_model` has compared it with the header of the weights
    put_weights(model, weights, folder / WEIGHTS)
    _read_alignment_heads(model, found.notes, folder / CONFIG)
    card = folder / MODEL_CARD
    text = read_regular(card, MAX_CARD_BYTES).decode("utf-8", "replace") if os.path.lexists(card) else ""
    return ModelFolder(model.eval(), config, found.source_tokenizer, found.target_tokenizer, found.notes, text)


def alignment_notes(model: Model) -> Table:
    """Return the note that a model folder has of heads that align words."""
    heads = [list(head) for head in model.alignment_heads]
    return {"alignment_heads": heads} if heads else {}


def _read_alignment_heads(model: Model, notes: Table, where: Path) -> None:
    """Tell a model which of its heads align words."""
    found = notes.get("alignment_heads")
    if found is None:
        return
    layers = [getattr(getattr(one, "shape", None), "num_heads", 1) for one in cross_attentions(model)]
    match found:
        case [[int(layer), int(head)]] if 0 <= layer < len(layers) and 0 <= head < layers[layer]:
            model.alignment_heads = ((layer, head),)
        case _:
            raise ModelFolderError(
                f"{where}: alignment_heads = {brief(found)} names no head of the model; copy the folder again"
            )


def _check_header(folder: Path, config: Config, sizes: VocabularySizes) -> None:
    """Compare the settings with the header of the weights, before either can exhaust memory or time.

    Nothing is allocated: the model is built on torch's meta device, and the weights stay on the disk.
    """
    header = SafetensorsHeader(folder / WEIGHTS)
    for name in ("num_layers", "decoder_layers"):
        layers = getattr(config, name, None) or 0
        if layers > header.most_tensors and not catalog.name_of(config).startswith("universal"):
            raise ModelFolderError(
                f"{folder / CONFIG}: {name} = {layers:,}, but {WEIGHTS} has fewer tensors; "
                f"copy {CONFIG} and {WEIGHTS} together"
            )
    try:
        with torch.device("meta"):
            model = catalog.build(config, sizes)
    except SettingsError as error:
        raise ModelFolderError(f"{folder / CONFIG}: {error}") from None
    mine = weights_of(model)
    _check_tensors(mine, header.tensors(max(len(mine), FEW_TENSORS)), folder / WEIGHTS)
    tables = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    if tables > max(LARGEST_TABLES, 4 * header.data_bytes):
        raise ModelFolderError(
            f"{folder / CONFIG}: its settings need tables of {tables:,} bytes; copy the folder again"
        )


def find_model(folder: Path) -> Path:
    """Return the model folder that a path means: the folder itself, or the model in a run folder."""
    try:
        there = folder.is_dir()
    except OSError as error:
        raise MissingInput(f"{folder}: cannot be read ({error.strerror}); check the path") from None
    if not there:
        what = "is a file" if folder.exists() else "no such folder"
        hub = ", or fetch it from the Hugging Face hub with `transduce import`" if is_hub_name(folder) else ""
        raise MissingInput(f"{folder}: {what}; give a run or model folder{hub}")
    if os.path.lexists(folder / CONFIG):
        _check_kind(folder)
        return folder
    if (folder / MODEL / CONFIG).exists():
        return folder / MODEL
    if any((folder / name).exists() for name in ONNX_GRAPHS):
        raise ModelFolderError(
            f"{folder}: is a model for ONNX Runtime, which cannot be converted back; use it as its README.md says, or "
            "give the folder that it was exported from"
        )
    if (folder / RECIPE).exists():
        raise ModelFolderError(
            f"{folder}: this run has no model yet; resume it with `transduce train --resume {folder}`, or make a model "
            f"from its checkpoints with `transduce train --finish {folder}`"
        )
    raise ModelFolderError(
        f"{folder}: is neither a run nor a model folder (no {CONFIG}); give a folder of `transduce train` or "
        "`transduce import`"
    )


def _check_kind(folder: Path) -> None:
    """Reject folders of other programs, exports included, and say what to do with them."""
    if (folder / CTRANSLATE2_WEIGHTS).exists() and not (folder / WEIGHTS).exists():
        raise ModelFolderError(
            f"{folder}: is a model for CTranslate2, which cannot be converted back; use it as its README.md says, or "
            "give the folder that it was exported from, with --engine ctranslate2"
        )
    if not os.path.lexists(folder / MANIFEST) and "model_type" in read_json(folder / CONFIG):
        raise ModelFolderError(
            f"{folder}: is a Hugging Face model; convert it with `transduce import {folder} --output FOLDER`, "
            "then give that folder"
        )


def weights_of(model: Model) -> dict[str, Tensor]:
    """Return every parameter by name, a shared one once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def put_weights(model: Model, weights: dict[str, Tensor], where: Path) -> None:
    """Copy weights into a model after checking their names, shapes and values."""
    mine = weights_of(model)
    entries = {
        name: TensorEntry(DTYPES.get(weight.dtype, str(weight.dtype)), tuple(weight.shape), 0)
        for name, weight in weights.items()
    }
    _check_tensors(mine, entries, where)
    for name, weight in weights.items():
        if not bool(weight.isfinite().all()):
            raise ModelFolderError(
                f"{where}: the weight '{name}' has values that are not finite, so its training diverged; "
                "train again with a lower training.learning_rate or with training.max_grad_norm"
            )
    with torch.no_grad():
        for name, weight in weights.items():
            mine[name].copy_(weight)


def _check_tensors(mine: Mapping[str, Tensor], found: Mapping[str, TensorEntry], where: Path) -> None:
    """Reject weights whose names, shapes or dtypes differ from the model's."""
    if missing := sorted(mine.keys() - found.keys()):
        raise ModelFolderError(
            f"{where}: the weight '{missing[0]}' is missing ({len(missing)} in all); copy the folder again"
        )
    if foreign := sorted(found.keys() - mine.keys()):
        raise ModelFolderError(
            f"{where}: unexpected weight '{foreign[0]}' ({len(foreign)} in all); copy the folder again"
        )
    for name, entry in found.items():
        if entry.shape != tuple(mine[name].shape) or not entry.is_floating:
            raise ModelFolderError(
                f"{where}: the weight '{name}' has shape {entry.shape} of {entry.dtype}, the model's has "
                f"{tuple(mine[name].shape)} of {', '.join(FLOATING)}; copy {CONFIG} and {WEIGHTS} together"
            )


def save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors by name; a full disk raises OSError, as for any other file."""
    try:
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))  # safetensors gives the error code in its message only
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from None


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name, from a regular file with floating-point numbers alone."""
    for name, entry in SafetensorsHeader(path).tensors().items():
        if not entry.is_floating:
            raise ModelFolderError(f"{path}: the weight {brief(name)} has dtype {entry.dtype}; copy the file again")
    try:
        weights: dict[str, Tensor] = load_file(path)
    except OSError as error:
        raise ModelFolderError(f"{path}: cannot be read ({error.strerror or error}); check its permissions") from None
    except SafetensorError as error:
        raise ModelFolderError(f"{path}: is not a safetensors file ({error}); copy it again") from None
    return weights


def checkpoint_weights(run: Path, update: int) -> dict[str, Tensor]:
    """Load the weights of a run's checkpoint, or their moving average if the run keeps one; needs no training code."""
    checkpoints = SavedCheckpoints(run)
    checkpoints.fingerprint(update)  # verifies every file
    return load_weights(checkpoints.final_weights(update))


def save_tokenizers(folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> None:
    """Write one file for a joint tokenizer, two otherwise."""
    if source is target or source.to_json() == target.to_json():
        source.save(folder / TOKENIZER)
    else:
        source.save(folder / SOURCE_TOKENIZER)
        target.save(folder / TARGET_TOKENIZER)


def load_tokenizers(
    folder: Path, joint: bool, sizes: VocabularySizes | None = None
) -> tuple[AnyTokenizer, AnyTokenizer]:
    """Load what `save_tokenizers` wrote; `sizes` are those of the model, which bound the sizes of the files."""
    source, target = (None, None) if sizes is None else sizes
    if joint:
        return load_tokenizer(folder / TOKENIZER, target).sides()
    return load_tokenizer(folder / SOURCE_TOKENIZER, source), load_tokenizer(folder / TARGET_TOKENIZER, target)


def _read_config(table: Table, where: Path) -> tuple[Config, VocabularySizes]:
    check_format(where.parent, table)
    vocabulary: Any = table.get("vocabulary")
    settings: Any = table.get("settings")
    try:
        sizes = VocabularySizes(int(vocabulary["source"]), int(vocabulary["target"]))
        config = catalog.entry(str(table.get("model"))).config.from_table(settings, str(where))
    except (TypeError, KeyError, ValueError, OverflowError):
        raise ModelFolderError(f"{where}: has no vocabulary sizes or settings; copy the folder again") from None
    except SettingsError as error:
        raise ModelFolderError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from None
    if not all(0 < size <= MAX_VOCABULARY for size in sizes):
        raise ModelFolderError(
            f"{where}: vocabularies of {sizes.source:,} and {sizes.target:,} tokens are invalid; copy the folder again"
        )
    if table.get("task") != catalog.task_of(config):
        raise ModelFolderError(
            f"{where}: states the task {str(table.get('task'))[:80]!r}, but a {table.get('model')} model is for "
            f"{catalog.task_of(config)}; copy the folder again"
        )
    return config, sizes
