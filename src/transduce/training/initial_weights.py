"""A model that does not start from chance: weights taken from a model folder, and some of them held still.

Where all weights are to be the folder's own, they are (`run` builds the same model); where a model has a new head or
other layers, `take_weights` gives it what fits by name and shape and says what is new.
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
from transduce.models.interface import EncoderModel, Model
from transduce.nn.embedding import Embedding
from transduce.storage.layout import MODEL_KIND, WEIGHTS
from transduce.storage.manifest import sha256, verify
from transduce.text.corpus import read_lines
from transduce.text.lines import is_stream
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.extension import made_of
from transduce.text.tokenizer.tokenizer import SPACE_MARK

MOST_NAMED = 5
"""Weights that a sentence names; of more it says how many."""


@dataclass(frozen=True)
class Taken:
    """Which weights of a model were given; all names are as `named_parameters` has them, in its order."""

    taken: tuple[str, ...]
    """Weights of the model that were given and had the model's shape."""
    new: tuple[str, ...]
    """Weights of the model that were not given: they stay as they were drawn."""
    reshaped: tuple[str, ...]
    """Weights that were given in another shape, and so stay as they were drawn too."""
    unused: tuple[str, ...]
    """Weights that were given and are not part of the model, by name."""

    def __str__(self) -> str:
        """Say it in one line."""
        said = [f"{len(self.taken):,} of {len(self.taken) + len(self.new) + len(self.reshaped):,} weights were taken"]
        for names, what in ((self.new, "new"), (self.reshaped, "of another shape"), (self.unused, "not used")):
            if names:
                named = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
                said.append(f"{len(names):,} {'are' if len(names) > 1 else 'is'} {what} ({named})")
        return "; ".join(said)


def take_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> Taken:
    """Copy the weights whose names and shapes are the model's own; say which were taken and which are new."""
    mine = dict(model.named_parameters())
    fits = [name for name in mine if name in weights and weights[name].shape == mine[name].shape]
    for name in fits:
        if not bool(weights[name].isfinite().all()):
            raise ModelFolderError(f"the weight '{name}' holds values that are not finite; start from another folder")
    with torch.no_grad():
        for name in fits:
            mine[name].copy_(weights[name])
    return Taken(
        taken=tuple(fits),
        new=tuple(name for name in mine if name not in weights),
        reshaped=tuple(name for name in mine if name in weights and name not in fits),
        unused=tuple(sorted(weights.keys() - mine.keys())),
    )


def folder_weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights of a model folder, or of the model in a run, after checking that the folder is whole."""
    place = find_model(folder)
    if WEIGHTS not in verify(place, MODEL_KIND)["files"]:
        raise ModelFolderError(f"{place}: its manifest does not list {WEIGHTS}; copy the folder again")
    return load_weights(place / WEIGHTS)


def initial_checkpoint(model: nn.Module, folder: Path) -> Taken:
    """Give a model what fits of a folder's weights; a folder of which nothing fits is refused."""
    taken = take_weights(model, folder_weights(folder))
    if not taken.taken:
        raise ModelFolderError(f"{folder}: none of its weights has a name and a shape of this model's; {taken}")
    return taken


def begin(model: Model, folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> str:
    """Give a model the weights that it begins with; return what was done in one line.

    A reader takes what fits, since its head is new with every task; any other model takes all there is.
    """
    if isinstance(model, EncoderModel):
        if _more_tokens(folder, source, target)["source"]:
            raise SettingsError(f"{folder}: knows fewer tokens than the corpus has; a reader keeps the tokens it has")
        return f"starting from {folder}: {initial_checkpoint(model, folder)}"
    added = start_whole(model, folder, source, target)
    more = f", with {added:,} more token{'s' * (added > 1)}" if added else ""
    return f"starting from the weights of {folder}{more}"


def start_whole(model: nn.Module, folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> int:
    """Give a model all weights of a folder; return how many tokens it has besides the folder's.

    `source` and `target` are the model's tokenizers: the folder's, or those with pieces added. The vector of a new
    piece is the mean of those that stood in its place before.
    """
    weights, more = folder_weights(folder), _more_tokens(folder, source, target)
    added = len(more["source"]) if source is target else len(more["source"]) + len(more["target"])
    grown = 0
    for name, weight in model.named_parameters():
        given, parts = weights.get(name), more["source" if name.startswith("source_embedding.") else "target"]
        if given is not None and parts and len(weight) == len(given) + len(parts):
            weights[name] = torch.cat([given, torch.stack([given[part].mean(dim=0) for part in parts])])
            grown += 1
    if added and not grown:  # tokens are known by their number there, and one more would give all another
        raise SettingsError(f"{folder}: this kind of model has no vectors of tokens, so that none can be added")
    taken = take_weights(model, weights)
    if taken.new or taken.reshaped or taken.unused:
        raise ModelFolderError(f"{folder}: its weights are not this model's: {taken}")
    return added


def _more_tokens(folder: Path, source: AnyTokenizer, target: AnyTokenizer) -> dict[str, list[list[int]]]:
    """For each token that a side has besides the folder's, those that stood in its place before."""
    old = describe_model(folder, hash_up_to=0)
    try:
        return {"source": made_of(old.source_tokenizer, source), "target": made_of(old.target_tokenizer, target)}
    except ValueError:
        raise SettingsError(
            f"{folder}: the corpus was tokenised otherwise than by this folder's tokenizers; prepare it with "
            f"tokenizer.folder = '{folder}'"
        ) from None


def freeze(model: nn.Module, patterns: Iterable[str]) -> list[str]:
    """Hold still the weights whose names fit a shell pattern (`encoder.*`); return their names.

    A weight with two uses has two names, and either of them holds it still. A pattern that fits nothing is refused,
    and so are patterns that leave nothing to learn.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        fitting = [weight for name, weight in named if fnmatchcase(name, pattern)]
        if not fitting:
            raise SettingsError(
                f"training.freeze: no weight is called '{pattern}'{suggestion(pattern, _families(named))}"
            )
        for weight in fitting:
            weight.requires_grad_(False)
    still = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    if len(still) == sum(1 for _ in model.parameters()):
        raise SettingsError("training.freeze: every weight is held still, and nothing is left to learn; freeze fewer")
    return still


def _families(named: Iterable[tuple[str, Tensor]]) -> set[str]:
    """What a person may want to name: everything below a module of the first level."""
    return {f"{name.split('.')[0]}.*" for name, _ in named}


# Embeddings that start from a word2vec or GloVe text file instead of from chance.


def vectors_fingerprint(path: str) -> str:
    """Return what tells this file from any other."""
    if is_stream(path):
        raise SettingsError(f"{path}: vectors are read twice, and this can be read once only; give a file")
    try:
        return sha256(Path(path))
    except OSError as error:
        raise MissingInput(f"{path}: cannot be read ({error.strerror}); check the path") from None


def start_from_vectors(embedding: Embedding, tokenizer: AnyTokenizer, path: str) -> int:
    """Copy the vectors of the tokens that a file knows; return how many it knew.

    The file has a word and its numbers on each line, separated by spaces; a first line of two numbers (word2vec)
    is skipped. A piece is looked up without its mark for a space. A vector arrives in the model as it stands in
    the file: the embedding's own factor is taken out of it.
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
                    "use a file of that width or change the model's"
                )
            for token in places.get(word, ()):
                embedding.weight[token] = _vector(numbers, f"{path}:{number}") / embedding.scale
                found.add(token)
    if not found:
        raise DataError(f"{path}: knows none of the {tokenizer.size:,} tokens; is it of this language?")
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
