"""Other people's models as model folders of ours: Hugging Face's folders, torch's own Transformer, GGUF files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from transduce.config import Config, Table
from transduce.errors import ModelFolderError, SettingsError, brief, suggestion
from transduce.interop import torch_transformer
from transduce.interop.gguf import GgufFile
from transduce.interop.huggingface.bert import BERT
from transduce.interop.huggingface.family import Family, Settings
from transduce.interop.huggingface.folder import CONFIG, ForeignFolder
from transduce.interop.huggingface.generation import read_search
from transduce.interop.huggingface.language_model import GPT2, LLAMA
from transduce.interop.huggingface.rename import Rename, Weights, matrix, names_of, read_renamed
from transduce.interop.huggingface.seq2seq import M2M100, MARIAN, PEGASUS
from transduce.interop.huggingface.t5 import T5
from transduce.interop.huggingface.tokenizer import Pair, import_tokenizers
from transduce.interop.torch_transformer import torch_tokenizers
from transduce.model_folder import ModelFolder, put_weights, save_model, weights_of
from transduce.models import catalog
from transduce.models.interface import EncoderModel, LanguageModel, VocabularySizes
from transduce.text.tokenizer.file import wrap_errors
from transduce.text.tokenizer.imported import ImportedConfig, ImportedTokenizer
from transduce.text.tokenizer.library_codec import LibraryCodec

FAMILIES: Mapping[str, Family] = {
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
OUR_HABITS = "transduce"
"""Where `config.json` of a reader that we exported keeps what `transformers` leave to the asker, …"""
HABITS = {"max_length": 8, "stride": 1, "allow_no_answer": True}
"""… which is this, each with the least that makes sense."""
EMBEDDINGS = (
    ("source_embedding.weight", "embedding.weight", "embedding.tokens.weight"),
    ("target_embedding.weight", "source_embedding.weight", "embedding.weight", "embedding.tokens.weight"),
)
"""Our weights that say how many tokens the source and the target have, the first of them that a model has."""


class Origin(NamedTuple):
    """A stranger's model, opened."""

    path: Path
    family: Family
    settings: Settings
    weights: Weights


def import_model(
    path: str | Path, output: str | Path, source_language: str | None = None, target_language: str | None = None
) -> ModelFolder:
    """Make a model folder out of a folder of Hugging Face's, or a GGUF file, and return what it holds.

    Where a model knows several languages, `source_language` and `target_language` say which it is to translate.
    """
    path = Path(path)
    if path.suffix == ".gguf" and (source_language or target_language):
        raise SettingsError(f"{path}: holds a language model, which translates nothing; leave out its languages")
    contents = _from_gguf(path) if path.suffix == ".gguf" else _from_folder(path, source_language, target_language)
    save_model(Path(output), contents, _card(contents, path))
    return contents


def _from_folder(path: Path, source_language: str | None, target_language: str | None) -> ModelFolder:
    folder = ForeignFolder(path)
    settings = Settings(folder.config, str(folder.path / CONFIG))
    origin = Origin(folder.path, _family(settings), settings, folder.weights)
    config, sizes, renames = _shape(origin)
    if settings.table["model_type"] == TORCH:
        tokenizers = torch_tokenizers(folder, settings, sizes)
    else:
        tokenizers = import_tokenizers(folder, sizes, source_language, target_language)
    table = folder.table(GENERATION) if folder.find(GENERATION) is not None else folder.config
    notes: Table = {"source_language": source_language, "target_language": target_language}
    notes |= {"opens_with": _opening(tokenizers[1])}
    if getattr(config, "head", None) in ("labels", "tags"):
        notes["labels"] = _labels(settings)
    notes |= _habits(settings)
    return _made(origin, config, sizes, renames, tokenizers, table, notes)


def _from_gguf(path: Path) -> ModelFolder:
    file = GgufFile(path)
    origin = Origin(path, LLAMA, Settings(file.table, str(path)), file)
    config, sizes, renames = _shape(origin)
    special = file.special
    end = special["end"] if special["end"] is not None else 0
    with wrap_errors(str(path), "a GGUF file with a tokenizer that can be read", "get it again"):
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
    notes = {"opens_with": "start" if file.adds_start else "nothing"}
    return _made(origin, config, sizes, renames, (tokenizer, tokenizer), {}, notes)


def _opening(tokenizer: ImportedTokenizer) -> str:
    """What stands before a text that a language model goes on with."""
    prefix = tokenizer.config.prefix
    return "nothing" if not prefix else "end" if prefix == (tokenizer.end,) else "start"


def _habits(settings: Settings) -> Table:
    """How a reader of ours read before it was exported, as far as that makes sense."""
    found = settings.table.get(OUR_HABITS)
    table = found if isinstance(found, dict) else {}
    return {
        name: table[name]
        for name, least in HABITS.items()
        if type(table.get(name)) is type(least) and table[name] >= least
    }


def _labels(settings: Settings) -> list[str] | None:
    """The names of a reader's labels in their order, None where it has no names for them."""
    labels = settings.table.get("id2label")
    if not isinstance(labels, dict):
        return None
    numbers = [str(number) for number in range(len(labels))]
    if labels.keys() != set(numbers):
        raise ModelFolderError(
            f"{settings.where}: id2label should number its labels from 0 on, not by {brief(sorted(labels))}"
        )
    return [str(labels[number]) for number in numbers]


def _family(settings: Settings) -> Family:
    kind = str(settings.table.get("model_type"))
    if kind == TORCH:
        return torch_transformer.family(settings)
    if kind not in FAMILIES:
        raise ModelFolderError(
            f"{settings.where}: model_type = {kind!r} cannot be imported{suggestion(kind, [*FAMILIES, TORCH])}"
        )
    return FAMILIES[kind]


def _shape(origin: Origin) -> tuple[Config, VocabularySizes, list[Rename]]:
    """What the model is, how many tokens it knows, and where its weights are; nothing large is made for that."""
    try:
        config = origin.family.read(origin.settings, origin.weights)
    except SettingsError as error:
        raise ModelFolderError(f"{error}; get {CONFIG} and the weights from one place") from None
    renames = origin.family.renames(config)
    by_name = {rename.ours: rename for rename in renames}
    sizes = []
    for names in EMBEDDINGS:
        rename = next(by_name[name] for name in names if name in by_name)
        there = next((name for name in names_of(rename) if name in origin.weights.names), None)
        if there is None:
            raise ModelFolderError(f"{origin.path}: has no weight '{next(iter(names_of(rename)))}'")
        sizes.append(len(matrix(origin.weights, there, str(origin.path))))
    return config, VocabularySizes(*sizes), renames


def _made(
    origin: Origin,
    config: Config,
    sizes: VocabularySizes,
    renames: list[Rename],
    tokenizers: Pair,
    generation: Table,
    notes: Table,
) -> ModelFolder:
    """Put everything together, shapes compared before memory is taken for a model of a stranger's sizes."""
    weights = read_renamed(renames, origin.weights, origin.family.ignored, str(origin.path))
    with torch.device("meta"):
        expected = {name: weight.shape for name, weight in weights_of(catalog.build(config, sizes)).items()}
    for name, weight in weights.items():
        if weight.shape != expected.get(name):
            raise ModelFolderError(
                f"{origin.path}: the weight '{name}' has shape {tuple(weight.shape)}, but the settings say "
                f"{tuple(expected.get(name, ()))}; get {CONFIG} and the weights from one place"
            )
    model = catalog.build(config, sizes)
    put_weights(model, {name: weight.float() for name, weight in weights.items()}, origin.path)
    if not isinstance(model, EncoderModel):
        notes["search"] = read_search(generation, model)
    kept = {name: value for name, value in notes.items() if value is not None}
    if not isinstance(model, LanguageModel):
        kept.pop("opens_with", None)
    return ModelFolder(model.eval(), config, *tokenizers, notes=kept)


def _card(contents: ModelFolder, path: Path) -> str:
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    verb = "translate"
    if isinstance(contents.model, LanguageModel):
        verb = "generate"
    elif isinstance(contents.model, EncoderModel):
        verb = "embed" if contents.model.head is None else "read"
    return "\n".join(
        [
            "---",
            "library_name: transduce",
            "---",
            "",
            f"# {path.stem}, imported",
            "",
            f"A {catalog.name_of(contents.config)} of {parameters:,} parameters, trained elsewhere. Its own card "
            "says what on, how good it is and what one may do with it.",
            "",
            f"Use it: `transduce {verb} THIS_FOLDER`.",
            "",
        ]
    )
