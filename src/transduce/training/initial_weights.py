"""Initial weights from a model folder or from word vectors, and frozen weights.

A model that writes takes all weights of the folder; a text encoder, whose head is new, those that match by name and
shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.errors import DataError, MissingInput, ModelFolderError, SettingsError, suggestion
from transduce.model_folder import describe_model, find_model, load_weights
from transduce.nn.embedding import Embedding
from transduce.storage.layout import MODEL_KIND, WEIGHTS
from transduce.storage.manifest import sha256, verify
from transduce.text.corpus import read_lines
from transduce.text.lines import is_stream
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.extension import made_of
from transduce.text.tokenizer.tokenizer import SPACE_MARK

MAX_NAMED = 5
"""Weights that a message names."""


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
        raise SettingsError(f"{folder}: this kind of model has no token embeddings, so that no tokens can be added")
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


# Embeddings that start from a word2vec or GloVe text file.


def vectors_fingerprint(path: str) -> str:
    """Return the SHA-256 of a file of vectors."""
    if is_stream(path):
        raise SettingsError(f"{path}: vectors are read twice, and this can be read only once; give a file")
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
