"""Embeddings that start from a word2vec or GloVe text file instead of from chance."""

from __future__ import annotations

from pathlib import Path

import torch

from transduce.errors import DataError, MissingInput, SettingsError
from transduce.nn.embedding import Embedding
from transduce.storage import sha256
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.corpus import read_lines
from transduce.text.line import is_stream
from transduce.text.tokenizer import SPACE_MARK


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
