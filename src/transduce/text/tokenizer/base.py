"""What all tokenizers share: their file, special tokens, and batches of inputs for text encoders.

An input of a text encoder is start, first text, end, for a pair also second text, end; truncated and padded. Calling a
tokenizer has the arguments of `transformers`, and gives the same numbers as its BERT tokenizers with the same
vocabulary.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from transduce.errors import (
    DataError,
    MissingInput,
    ModelFolderError,
    SettingsError,
    TransduceError,
    one_line,
    suggestion,
)
from transduce.storage.atomic import atomic_file
from transduce.storage.untrusted import read_regular
from transduce.text.tokenizer.special import Specials

TRUNCATION_RULES = ("longest_first", "only_first", "only_second")
PADDING_RULES = ("longest", "max_length")

BatchEncoding = dict[str, Any]
"""`input_ids`, `token_type_ids` (which of two texts), `attention_mask` (1 for a real token)."""

MAX_FILE_BYTES = 128 * 2**20
"""Maximum size of a `tokenizer.json`; those of 256,000 pieces have a quarter of it."""


def file_limit(vocabulary: int | None) -> int:
    """Return the largest file of a tokenizer for a vocabulary of this size; a piece and its merges take 100 bytes."""
    return MAX_FILE_BYTES if vocabulary is None else min(MAX_FILE_BYTES, 4 * 2**20 + 512 * vocabulary)


def read_file(path: Path, vocabulary: int | None = None) -> str:
    """Return the text of a tokenizer file; the size of the model's vocabulary bounds that of the file."""
    try:
        there = os.path.lexists(path)
    except (OSError, ValueError):
        there = False
    if not there:
        raise MissingInput(f"{path}: cannot be read (No such file or directory); check the path")
    try:
        return read_regular(path, file_limit(vocabulary), remedy="copy the right file").decode("utf-8")
    except UnicodeDecodeError:
        raise ModelFolderError(f"{path}: is not a tokenizer (not UTF-8 text); copy the right file") from None


@contextmanager
def encoding_errors() -> Iterator[None]:
    """Turn whatever the library raises on a text into a DataError; its panics are BaseExceptions."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, TransduceError):
        raise
    except BaseException as error:
        raise DataError(f"the model's tokenizer cannot process the text ({one_line(error)})") from None


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


class BaseTokenizer(ABC):
    """Special tokens and batch encoding, common to all tokenizers."""

    pad: int
    start: int
    end: int
    unknown: int | None
    """The unknown token; None for lossless tokenizers."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text; the same as `encode` one by one, but faster."""

    @property
    def specials(self) -> Specials:
        """Padding, start and end token."""
        return Specials(self.pad, self.start, self.end)

    @abstractmethod
    def to_json(self) -> str:
        """Return the text of the tokenizer's file; the same tokenizer always gives the same text."""

    @classmethod
    @abstractmethod
    def from_json(cls, text: str, where: str) -> Self:
        """Read the text of a tokenizer's file; `where` names it in errors."""

    def save(self, path: str | Path) -> None:
        """Write the tokenizer's file atomically."""
        with atomic_file(Path(path)) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a file of `save`."""
        return cls.from_json(read_file(Path(path)), str(path))

    def count_unknown(self, tokens: Sequence[int]) -> int:
        """Return the number of unknown tokens."""
        return 0 if self.unknown is None else list(tokens).count(self.unknown)

    def __call__(
        self,
        text: str | Sequence[str],
        pair: str | Sequence[str] | None = None,
        *,
        padding: bool | str = False,
        truncation: bool | str = False,
        max_length: int | None = None,
        return_tensors: str | None = None,
    ) -> BatchEncoding:
        """Encode one text or many, or pairs of texts, for a text encoder, with special tokens.

        `padding`: True or "longest" pads to the longest, "max_length" to that. `truncation`: True or "longest_first"
        removes tokens from the longer text of a pair, "only_first" and "only_second" from that one.
        `return_tensors` is "pt" for torch's tensors or "np" for arrays; lists otherwise.
        """
        cut, fill = _choice(truncation, TRUNCATION_RULES, "truncation"), _choice(padding, PADDING_RULES, "padding")
        if max_length is None and (fill == "max_length" or cut is not None):
            raise SettingsError("truncation and padding to max_length need max_length")
        single = isinstance(text, str)
        first = [text] if isinstance(text, str) else list(text)
        second = None if pair is None else [pair] if isinstance(pair, str) else list(pair)
        if second is not None and (len(first) != len(second) or single is not isinstance(pair, str)):
            raise SettingsError(f"text and pair must have the same length, not {len(first)} and {len(second)}")
        firsts = self.encode_batch(first)
        seconds = [None] * len(firsts) if second is None else self.encode_batch(second)
        rows = []
        for a, b in zip(firsts, seconds, strict=True):
            if cut is not None and max_length is not None:
                a, b = truncate_pair(a, b, max_length, cut)
            rows.append(self._with_special_tokens(a, b))
        width = max_length or 0 if fill == "max_length" else max((len(ids) for ids, _ in rows), default=0)
        filled = [width - len(ids) if fill is not None else 0 for ids, _ in rows]
        found: BatchEncoding = {
            "input_ids": [ids + [self.pad] * more for (ids, _), more in zip(rows, filled, strict=True)],
            "token_type_ids": [kinds + [0] * more for (_, kinds), more in zip(rows, filled, strict=True)],
            "attention_mask": [
                [1] * len(ids) + [0] * max(0, more) for (ids, _), more in zip(rows, filled, strict=True)
            ],
        }
        if return_tensors is not None:
            return _as_arrays(found, return_tensors)
        return {name: values[0] for name, values in found.items()} if single else found

    def _with_special_tokens(self, first: list[int], second: list[int] | None) -> tuple[list[int], list[int]]:
        """Return tokens with special tokens, and the segment (0 or 1) of each."""
        ids, kinds = [self.start, *first, self.end], [0] * (len(first) + 2)
        if second is None:
            return ids, kinds
        return [*ids, *second, self.end], [*kinds, *([1] * (len(second) + 1))]


def truncate_pair(
    first: list[int], second: list[int] | None, max_length: int, cut: str = "longest_first"
) -> tuple[list[int], list[int] | None]:
    """Truncate both texts so that they fit into `max_length` with special tokens.

    With "longest_first" the shorter text stays whole as long as it is no longer than the rest of the other.
    """
    room = max_length - (2 if second is None else 3)
    if room < 0:
        raise SettingsError(f"max_length = {max_length} is too small for the special tokens; give at least 3")
    if second is None:
        return first[:room] if cut != "only_second" else first, None
    over = len(first) + len(second) - room
    if over <= 0:
        return first, second
    if cut != "longest_first":
        shorter = first if cut == "only_first" else second
        if len(shorter) < over:
            raise SettingsError(f"truncation = '{cut}' cannot reduce the pair to max_length = {max_length}")
        kept = shorter[: len(shorter) - over]
        return (kept, second) if cut == "only_first" else (first, kept)
    small = min(len(first), len(second))
    large = max(small, room - small)
    if small + large > room:
        small, large = room // 2, room - room // 2
    keep = (small, large) if len(first) <= len(second) else (large, small)
    return first[: keep[0]], second[: keep[1]]


def _choice(given: bool | str, known: tuple[str, ...], name: str) -> str | None:
    if given is False:
        return None
    if given is True:
        return known[0]
    if given not in known:
        raise SettingsError(f"{name} cannot be '{given}'{suggestion(given, known)}")
    return given


def _as_arrays(found: BatchEncoding, kind: str) -> BatchEncoding:
    if kind not in ("pt", "np"):
        raise SettingsError(f"return_tensors is 'pt' or 'np', not '{kind}'")
    if len({len(ids) for ids in found["input_ids"]}) > 1:
        raise SettingsError("texts of different lengths cannot form a tensor; set padding = True")
    make: Any = importlib.import_module("torch").tensor if kind == "pt" else np.array  # text does not import torch
    return {name: make(values) for name, values in found.items()}
