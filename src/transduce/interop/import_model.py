"""Import models into our model folders: Hugging Face folders, `torch.nn.Transformer` weights, GGUF files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from transduce.config import Config, Table
from transduce.errors import CannotCreate, ModelFolderError, SettingsError, brief
from transduce.interop import torch_transformer
from transduce.interop.gguf import GgufFile
from transduce.interop.huggingface.architecture import (
    Architecture,
    Settings,
    WeightMapping,
    Weights,
    check_sizes,
    load_mapped,
    rows_and_columns,
    source_names,
)
from transduce.interop.huggingface.bert import BERT
from transduce.interop.huggingface.folder import CONFIG, HuggingFaceFolder
from transduce.interop.huggingface.generation import read_search
from transduce.interop.huggingface.language_model import GPT2, LLAMA
from transduce.interop.huggingface.seq2seq import M2M100, MARIAN, PEGASUS
from transduce.interop.huggingface.t5 import T5
from transduce.interop.huggingface.tokenizer import Pair, import_tokenizers
from transduce.interop.torch_transformer import torch_tokenizers
from transduce.model_folder import ModelFolder, load_model, put_weights, save_model, weights_of
from transduce.models import catalog
from transduce.models.interface import EncoderModel, LanguageModel, VocabularySizes
from transduce.storage.hub import Snapshot, copy_snapshot, download, is_hub_name
from transduce.text.tokenizer.base import wrap_errors
from transduce.text.tokenizer.imported import ImportedConfig, ImportedTokenizer
from transduce.text.tokenizer.library_codec import LibraryCodec

ARCHITECTURES: Mapping[str, Architecture] = {
    "marian": MARIAN,
    "pegasus": PEGASUS,
    "m2m_100": M2M100,
    "t5": T5,
    "bert": BERT,
    "gpt2": GPT2,
    "llama": LLAMA,
}
"""By the `model_type` of `config.json`."""
TORCH = "torch_transformer"

GENERATION = "generation_config.json"
TRANSDUCE_KEY = "transduce"
"""Key in `config.json` of an exported text encoder for the notes that `transformers` has no setting for, …"""
ENCODER_NOTES = {"max_length": 8, "stride": 1, "allow_no_answer": True}
"""… which are these, each with its smallest valid value."""
EMBEDDINGS = (
    ("source_embedding.weight", "embedding.weight", "embedding.tokens.weight"),
    ("target_embedding.weight", "source_embedding.weight", "embedding.weight", "embedding.tokens.weight"),
)
"""Weights whose rows are the source and the target vocabulary: the first one that a model has counts."""


class SourceModel(NamedTuple):
    """An untrusted model, opened."""

    path: Path
    architecture: Architecture
    settings: Settings
    weights: Weights


def read_foreign(path: Path, source_language: str | None = None, target_language: str | None = None) -> ModelFolder:
    """Read a Hugging Face folder or a GGUF file.

    `source_language` and `target_language` select the languages of a multilingual model.
    """
    if path.suffix == ".gguf" and (source_language or target_language):
        raise SettingsError(f"{path}: holds a language model, not a translation model; leave out the languages")
    return _from_gguf(path) if path.suffix == ".gguf" else _from_folder(path, source_language, target_language)


def import_model(
    name: str | Path,
    output: str | Path,
    source_language: str | None = None,
    target_language: str | None = None,
    revision: str | None = None,
) -> ModelFolder:
    """Write a model folder from a Hugging Face folder, a GGUF file, or a model of the Hugging Face hub by its name.

    It returns the contents. `source_language` and `target_language` select the languages of a multilingual model;
    `revision` is a branch, tag or commit of the hub.
    """
    if Path(output).exists():
        raise CannotCreate(f"{output}: exists already; choose a new folder")
    if not is_hub_name(name):
        check_no_revision(name, revision)
        contents = read_foreign(Path(name), source_language, target_language)
        save_model(Path(output), contents, _card(contents, str(name)))
        return contents
    return convert(checked_download(str(name), revision), Path(output), source_language, target_language)


def checked_download(name: str, revision: str | None) -> Snapshot:
    """Download a model of the hub; one that cannot be imported is rejected before its weights are fetched."""
    described = download(name, revision, weights=False)
    if not described.is_ours:
        settings = Settings(HuggingFaceFolder(described.path).config, f"{name}: {CONFIG}")
        _architecture(settings)
    return download(name, revision)


def convert(
    snapshot: Snapshot, output: Path, source_language: str | None = None, target_language: str | None = None
) -> ModelFolder:
    """Write a model folder from a download; return its contents."""
    if snapshot.is_ours:
        if source_language or target_language:
            raise SettingsError(f"{snapshot.name}: was pushed from transduce; leave out the languages")
        copy_snapshot(snapshot, output)
        return load_model(output)
    contents = read_foreign(snapshot.path, source_language, target_language)
    save_model(output, contents, _card(contents, f"{snapshot.name}, revision {snapshot.commit}"))
    return contents


def check_no_revision(name: str | Path, revision: str | None) -> None:
    """Raise if there is a revision for a file or folder."""
    if revision is not None:
        raise SettingsError(f"{name}: is not a model of the hub, so it has no revision; leave it out")


def _from_folder(path: Path, source_language: str | None, target_language: str | None) -> ModelFolder:
    folder = HuggingFaceFolder(path)
    settings = Settings(folder.config, str(folder.path / CONFIG))
    source = SourceModel(folder.path, _architecture(settings), settings, folder.weights)
    config, sizes, weight_map = _read_config(source)
    if settings.table["model_type"] == TORCH:
        tokenizers = torch_tokenizers(folder, settings, sizes)
    else:
        tokenizers = import_tokenizers(folder, sizes, source_language, target_language)
    table = folder.table(GENERATION) if folder.find(GENERATION) is not None else folder.config
    notes: Table = {"source_language": source_language, "target_language": target_language}
    notes |= {"prompt_start": _prompt_start(tokenizers[1])}
    if getattr(config, "head", None) in ("labels", "tags"):
        notes["labels"] = _labels(settings)
    notes |= _encoder_notes(settings)
    return _build(source, config, sizes, weight_map, tokenizers, table, notes)


def _from_gguf(path: Path) -> ModelFolder:
    file = GgufFile(path)
    source = SourceModel(path, LLAMA, Settings(file.table, str(path)), file)
    config, sizes, weight_map = _read_config(source)
    special = file.special
    end = special["end"] if special["end"] is not None else 0
    with wrap_errors(str(path), "a GGUF file with a tokenizer that can be read", "download it again"):
        codec = LibraryCodec(json.loads(file.tokenizer().to_str()))
        known: Table = {
            "family": "llama",
            "size": sizes.target,
            "pad": special["pad"] if special["pad"] is not None else end,
            "start": special["start"] if special["start"] is not None else end,
            "end": end,
            "unknown": special["unknown"],
            "skipped": tuple(sorted(token for token in codec.special if token < sizes.target)),
        }
        tokenizer = ImportedTokenizer(ImportedConfig.from_table(known, "its tokens"), codec)
    notes = {"prompt_start": "start" if file.adds_start else "nothing"}
    return _build(source, config, sizes, weight_map, (tokenizer, tokenizer), {}, notes)


def _prompt_start(tokenizer: ImportedTokenizer) -> str:
    """Return which token precedes the prompt of a language model."""
    prefix = tokenizer.config.prefix
    return "nothing" if not prefix else "end" if prefix == (tokenizer.end,) else "start"


def _encoder_notes(settings: Settings) -> Table:
    """Return the notes of a text encoder that was exported from here, as far as they are valid."""
    found = settings.table.get(TRANSDUCE_KEY)
    table = found if isinstance(found, dict) else {}
    return {
        name: table[name]
        for name, least in ENCODER_NOTES.items()
        if type(table.get(name)) is type(least) and table[name] >= least
    }


def _labels(settings: Settings) -> list[str] | None:
    """Return the label names of a text encoder in order, None if it has none."""
    labels = settings.table.get("id2label")
    if not isinstance(labels, dict):
        return None
    numbers = [str(number) for number in range(len(labels))]
    if labels.keys() != set(numbers):
        raise ModelFolderError(
            f"{settings.where}: id2label must number its labels from 0, not by {brief(sorted(labels))}"
        )
    return [str(labels[number]) for number in numbers]


def _architecture(settings: Settings) -> Architecture:
    kind = str(settings.table.get("model_type"))
    if kind == TORCH:
        return torch_transformer.architecture(settings)
    if kind not in ARCHITECTURES:
        raise ModelFolderError(
            f"{settings.where}: model_type = {kind!r} cannot be imported; supported: "
            f"{', '.join(sorted([*ARCHITECTURES, TORCH]))}"
        )
    return ARCHITECTURES[kind]


def _read_config(source: SourceModel) -> tuple[Config, VocabularySizes, list[WeightMapping]]:
    """Return config, vocabulary sizes and weight map, without allocating a model."""
    check_sizes(source.settings.table, source.weights, str(source.path))
    try:
        config = source.architecture.read(source.settings, source.weights)
    except SettingsError as error:
        raise ModelFolderError(f"{error}; take {CONFIG} and the weights from one checkpoint") from None
    weight_map = source.architecture.weight_map(config)
    by_name = {mapping.name: mapping for mapping in weight_map}
    sizes = []
    for names in EMBEDDINGS:
        mapping = next(by_name[name] for name in names if name in by_name)
        there = next((name for name in source_names(mapping) if name in source.weights.names), None)
        if there is None:
            raise ModelFolderError(f"{source.path}: missing weight '{next(iter(source_names(mapping)))}'")
        sizes.append(rows_and_columns(source.weights, there, str(source.path))[0])
    return config, VocabularySizes(*sizes), weight_map


def _build(
    source: SourceModel,
    config: Config,
    sizes: VocabularySizes,
    weight_map: list[WeightMapping],
    tokenizers: Pair,
    generation: Table,
    notes: Table,
) -> ModelFolder:
    """Build the model folder's contents; shapes are checked before memory is allocated for an untrusted config."""
    weights = load_mapped(weight_map, source.weights, source.architecture.ignored, str(source.path))
    with torch.device("meta"):
        expected = {name: weight.shape for name, weight in weights_of(catalog.build(config, sizes)).items()}
    for name, weight in weights.items():
        if weight.shape != expected.get(name):
            raise ModelFolderError(
                f"{source.path}: the weight '{name}' has shape {tuple(weight.shape)}, but the config requires "
                f"{tuple(expected.get(name, ()))}; take {CONFIG} and the weights from one checkpoint"
            )
    model = catalog.build(config, sizes)
    put_weights(model, {name: weight.float() for name, weight in weights.items()}, source.path)
    if not isinstance(model, EncoderModel):
        notes["search"] = read_search(generation, model)
    kept = {name: value for name, value in notes.items() if value is not None}
    if not isinstance(model, LanguageModel):
        kept.pop("prompt_start", None)
    return ModelFolder(model.eval(), config, *tokenizers, notes=kept)


def _card(contents: ModelFolder, origin: str) -> str:
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    verb = "translate"
    if isinstance(contents.model, LanguageModel):
        verb = "generate"
    elif isinstance(contents.model, EncoderModel):
        verb = "embed" if contents.model.head is None else "predict"
    return "\n".join(
        [
            "---",
            "library_name: transduce",
            "---",
            "",
            f"# {Path(origin).name}, imported",
            "",
            f"A {catalog.name_of(contents.config)} of {parameters:,} parameters, trained elsewhere and imported from "
            f"{origin}. Its original card has its training data, scores and license.",
            "",
            f"Use it: `transduce {verb} THIS_FOLDER`.",
            "",
        ]
    )
