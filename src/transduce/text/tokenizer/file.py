"""Read and check the `tokenizer.json` of tokenizers trained here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from transduce.errors import MissingInput, ModelFolderError, one_line
from transduce.text.tokenizer.special import (
    BYTE_OF,
    LOSSLESS,
    MASK,
    UNKNOWN,
    Kind,
    byte_fallbacks,
    sentinel_pieces,
    special_pieces,
    tagged_language,
)

MAX_FILE_BYTES = 256 * 2**20
"""Maximum size of a `tokenizer.json`; a million long words need less."""


def read_file(path: Path) -> str:
    """Return the text of a tokenizer file."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelFolderError(f"{path}: is too large for a tokenizer; copy the right file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise MissingInput(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise ModelFolderError(f"{path}: is not a tokenizer (not UTF-8 text); copy the right file") from None


@contextmanager
def wrap_errors(where: str, what: str, remedy: str) -> Iterator[None]:
    """Turn any exception into a ModelFolderError that says that `where` is not `what`, and why."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, ModelFolderError):
        raise
    except BaseException as error:  # the library raises bare Exceptions, and its panics are BaseExceptions
        reason = f"missing {error}" if isinstance(error, KeyError) else one_line(error)
        raise ModelFolderError(f"{where}: is not {what} ({reason}); {remedy}") from None


def parse(text: str) -> tokenizers.Tokenizer:
    """Return the library tokenizer; reject settings that the library accepts but that would change tokens."""
    content: Any = json.loads(text)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise ValueError("not a tokenizer.json")
    if any(content.get(setting) for setting in ("truncation", "padding", "post_processor")):
        raise ValueError("it truncates, pads or post-processes texts")
    if any(content["model"].get(setting) for setting in ("dropout", "alpha", "nbest_size")):
        raise ValueError("it tokenizes at random")
    return tokenizers.Tokenizer.from_str(text)


def kind_of(library: tokenizers.Tokenizer) -> Kind:
    """Return the kind of a library tokenizer; raise ValueError for other models."""
    model = library.model
    if isinstance(model, models.BPE):
        if model.byte_fallback:
            return "character"
        return "byte" if isinstance(library.pre_tokenizer, pre_tokenizers.ByteLevel) else "bpe"
    by_model: dict[type, Kind] = {models.Unigram: "unigram", models.WordPiece: "wordpiece", models.WordLevel: "word"}
    if type(model) not in by_model:
        raise ValueError(f"its model is {type(model).__name__}")
    return by_model[type(model)]


def check(library: tokenizers.Tokenizer, kind: Kind, vocabulary: dict[str, int]) -> None:
    """Raise ValueError unless tokens are numbered from 0 without gaps and every text can be encoded."""
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ValueError("its tokens are not numbered from 0 without gaps")
    added = library.get_added_tokens_decoder().values()
    special, needed = (
        {token.content for token in added if token.special},
        {*special_pieces(kind), *sentinels_of(library)},
    )
    tags = {piece for piece in special if tagged_language(piece) is not None}
    if special - tags - {MASK} != needed or len(added) != len(special):
        raise ValueError(
            f"its special pieces are {', '.join(sorted(special)) or 'none'}, not {', '.join(sorted(needed))}"
        )
    if kind in LOSSLESS and not vocabulary.keys() >= set(byte_fallbacks() if kind == "character" else BYTE_OF):
        raise ValueError("it lacks some of the 256 bytes")
    if kind in ("bpe", "unigram", "byte") and not all(BYTE_OF.keys() >= set(p) for p in vocabulary.keys() - special):
        raise ValueError("it has pieces that are not made of bytes")
    if kind not in LOSSLESS and getattr(library.model, "unk_token", None) != UNKNOWN:
        raise ValueError("it has no unknown token")


def tags_of(library: tokenizers.Tokenizer) -> dict[str, int]:
    """Return the language tags: language -> token."""
    added = library.get_added_tokens_decoder().items()
    found = {tagged_language(token.content): number for number, token in added if token.special}
    return {language: number for language, number in found.items() if language is not None}


def sentinels_of(library: tokenizers.Tokenizer) -> list[str]:
    """Return the reserved sentinels in order; a word of the corpus that is spelled like one does not count."""
    added = {token.content for token in library.get_added_tokens_decoder().values() if token.special}
    return [piece for piece in sentinel_pieces(len(added)) if piece in added]
