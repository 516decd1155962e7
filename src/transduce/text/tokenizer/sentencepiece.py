"""SentencePiece model files (`.model`, `.spm`): pieces with scores, and the normalization of text.

SentencePiece (Kudo and Richardson 2018) stores a trained model as one protocol-buffer message. We parse it without the
library, whose C++ parser has had vulnerabilities, and strictly: a file that the library would interpret differently is
rejected. `sentencepiece_codec.py` encodes and decodes text with these pieces.
"""

from __future__ import annotations

import enum
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from transduce.errors import ModelFolderError, brief
from transduce.text.tokenizer.special import byte_fallbacks

# The protocol-buffer wire format, without schemas.
#
# A message is a sequence of fields. A field is a key (field number and wire type) and a value: a varint of 1 to 10
# bytes, 4 or 8 raw bytes, or a length and that many bytes (a string or a nested message). Truncated fields, and fields
# longer than the message around them, raise ValueError.

Value = int | bytes

VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
"""Wire types; 3 and 4 are groups, which are deprecated and not supported."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield (number, value) of every field of a message; values of 4 and 8 bytes as raw bytes."""
    place, size = 0, len(message)
    while place < size:
        key, place = _varint(message, place)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if wire_type == SIZED:
            length, place = _varint(message, place)
        elif wire_type in (FOUR, EIGHT):
            length = 4 if wire_type == FOUR else 8
        else:
            raise ValueError(f"a field has the unknown wire type {wire_type}")
        if length > size - place:
            raise ValueError(f"a field of {length:,} bytes is longer than the {size - place:,} that are left")
        yield number, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a varint (seven bits per byte, lowest first); return it and the offset after it."""
    if place < len(message) and message[place] < 0x80:  # the common case
        return message[place], place + 1
    number = shift = 0
    for length, byte in enumerate(message[place : place + 10], start=1):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place + length
        shift += 7
    raise ValueError("a varint does not end")


# SentencePiece's "precompiled charsmap": the character normalization applied before segmentation.
#
# It is a table of rules such as "ﬁ → fi" or "e + ◌́ → é", most often NFKC as of the time of training, so that a newer
# Unicode version does not change the input of a model. It is stored as a double-array trie (Aoe 1989, in the layout of
# darts-clone) over the UTF-8 of the replaced characters, and one string of all replacements. At each position of a
# text the longest matching rule applies; replacements are not normalized again.
#
# There are 200,000 rules, nearly all for letters with several accents, so they are looked up on demand and cached. The
# `Precompiled` normalizer of `tokenizers` is not equivalent: it matches a letter together with its accents, applies the
# shortest rule, and so loses accents.

MAX_CHARSMAP_BYTES = 16 * 2**20
"""Largest accepted table; NFKC's has a quarter of a megabyte."""
MAX_RULE = 32
"""Most characters that a rule may replace; NFKC's replace at most four."""
MAX_REPLACEMENT = 256
"""Longest replacement in bytes; NFKC's have at most 33."""
MAX_CACHED = 2**16

_LABEL, _VALUE, _IS_VALUE, _HAS_VALUE = 0x800000FF, 0x7FFFFFFF, 0x80000000, 0x100
"""Bit masks of a trie unit: its label, its value, whether it is a value, and whether it has a value as a child."""


class Charsmap:
    """Character normalization rules. Most texts need single-character rules only, for which `str.translate` is fast."""

    def __init__(self, units: tuple[int, ...] = (), texts: bytes = b"") -> None:
        self._units, self._texts = units, texts
        self._single = _SingleCharacterRules(self)
        self._apart: set[tuple[str, str]] = set()
        """Pairs of neighbouring characters that no rule starts with."""

    @classmethod
    def read(cls, content: bytes) -> Charsmap:
        """Parse the charsmap of a model file, which may be empty; raises ValueError if it is invalid."""
        if not content:
            return cls()
        size = int.from_bytes(content[:4], "little")
        if not 4 <= size < len(content) - 4 or size % 4 or len(content) > MAX_CHARSMAP_BYTES:
            raise ValueError("its normalization rules are truncated or too large")
        units = np.frombuffer(content, dtype="<u4", count=size // 4, offset=4)
        texts = content[4 + size :]
        texts.decode("utf-8")  # UnicodeDecodeError is a ValueError
        begins = units[units & _IS_VALUE > 0].astype(np.int64) & _VALUE
        letters = np.frombuffer(texts, dtype=np.uint8)
        ends = np.append(np.flatnonzero(letters == 0), len(letters) + MAX_REPLACEMENT)
        if begins.size and begins.max() >= len(letters):
            raise ValueError("a normalization rule points outside its table")
        if np.any(ends[np.searchsorted(ends, begins)] - begins >= MAX_REPLACEMENT) or np.any(letters[begins] >> 6 == 2):
            raise ValueError("the replacement of a normalization rule is truncated")
        return cls(tuple(units.tolist()), texts)

    def apply(self, text: str) -> str:
        """Return a text with every rule applied."""
        if not self._units:
            return text
        if len(self._single) + len(self._apart) > MAX_CACHED:
            self._single.clear()
            self._apart.clear()
        if self._apart.issuperset(pairwise(text)):
            return text.translate(self._single)
        pairs = set(pairwise(text)) - self._apart
        joined = {pair for pair in pairs if self._is_rule_prefix(*pair)}
        self._apart |= pairs - joined
        return "".join(self._replaced(text)) if joined else text.translate(self._single)

    def longest(self, text: str, place: int) -> tuple[int, str | None]:
        """Return where the longest rule that matches at `place` ends, and its replacement (None if none matches)."""
        found, rule, node = place + 1, None, 0
        for end in range(place, min(len(text), place + MAX_RULE)):
            child = self._child(node, text[end])
            if child is None:
                break
            node = child
            if (written := self._written(node)) is not None:
                found, rule = end + 1, written
        return found, rule

    def _replaced(self, text: str) -> Iterator[str]:
        place = 0
        while place < len(text):
            end, written = self.longest(text, place)
            yield text[place] if written is None else written
            place = end

    def _is_rule_prefix(self, first: str, second: str) -> bool:
        """Whether any rule starts with these two characters."""
        node = self._child(0, first)
        return node is not None and self._child(node, second) is not None

    def _child(self, node: int, character: str) -> int | None:
        """Follow the bytes of one character from a node; None if there is no such child."""
        units = self._units
        for byte in character.encode("utf-8"):
            node = _base(node, units[node]) ^ byte
            if not byte or node >= len(units) or units[node] & _LABEL != byte:
                return None
        return node

    def _written(self, node: int) -> str | None:
        """The replacement of the rule that ends at a node; None if no rule ends there."""
        place = _base(node, self._units[node])
        if not self._units[node] & _HAS_VALUE or place >= len(self._units) or not self._units[place] & _IS_VALUE:
            return None
        begin = self._units[place] & _VALUE
        return self._texts[begin : self._texts.index(b"\0", begin)].decode("utf-8")


class _SingleCharacterRules(dict[int, str]):
    """Replacement of each single character by code point, for `str.translate`; filled on demand."""

    def __init__(self, rules: Charsmap) -> None:
        self._rules = rules

    def __missing__(self, number: int) -> str:
        _, written = self._rules.longest(chr(number), 0)
        self[number] = chr(number) if written is None else written
        return self[number]


def _base(node: int, unit: int) -> int:
    """Base of a node's children: the child of a byte is at base XOR byte, the value at base XOR 0."""
    return node ^ ((unit >> 10) << ((unit & 0x200) >> 6))


MAX_BYTES = 64 * 2**20
"""Largest accepted file; one of 256,000 pieces has a tenth of this."""
MAX_PIECES = 1_000_000
MAX_PIECE_BYTES = 512

MAX_SCORE = 1e6
"""Largest accepted absolute score; scores are log probabilities (unigram) or negative merge ranks (BPE)."""


class PieceType(enum.IntEnum):
    """Types of pieces; only normal and user-defined ones are found in text."""

    NORMAL = 1
    UNKNOWN = 2
    """The unknown piece; there is exactly one."""
    CONTROL = 3
    """A special token such as `<s>`; never parsed from text."""
    USER_DEFINED = 4
    """Always one piece wherever its text occurs; not normalised."""
    UNUSED = 5
    """Removed from the vocabulary, but keeps its id."""
    BYTE = 6
    """One of the 256 byte-fallback pieces."""


@dataclass(frozen=True)
class SentencePieceModel:
    """The parts of a model file that determine encoding and decoding."""

    kind: Literal["unigram", "bpe"]
    pieces: list[str]
    scores: list[float]
    types: list[PieceType]
    unknown: int
    """Id of the unknown piece."""
    unknown_surface: str = " \u2047 "
    """Text that the unknown piece decodes to."""
    byte_fallback: bool = False
    """Whether characters that no piece covers are encoded as bytes instead of the unknown piece."""
    charsmap: Charsmap = field(default_factory=Charsmap)
    add_dummy_prefix: bool = True
    """Whether a space is prepended, so that a word has the same pieces at the start of a text as within it."""
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    """Whether pieces contain U+2581 instead of spaces."""

    def of_type(self, piece_type: PieceType) -> list[int]:
        """Return the ids of the pieces of a type."""
        return [number for number, found in enumerate(self.types) if found == piece_type]


def read_sentencepiece(content: bytes, where: str) -> SentencePieceModel:
    """Parse the bytes of a model file; `where` names it in errors."""
    try:
        return _model(content)
    except ValueError as error:
        reason = "a text in it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise ModelFolderError(f"{where}: is not a supported SentencePiece model ({reason})") from None


def _model(content: bytes) -> SentencePieceModel:
    pieces: list[str] = []
    scores: list[float] = []
    types: list[PieceType] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in fields(content):
        if number == 1:
            piece, score, kind = _piece(_bytes(value))
            pieces.append(piece)
            scores.append(score)
            types.append(kind)
            if len(pieces) > MAX_PIECES:
                raise ValueError(f"it has more than {MAX_PIECES:,} pieces")
        elif number in (2, 3):
            table = trainer if number == 2 else normalizer
            table |= dict(fields(_bytes(value)))  # the last of repeated fields counts
        elif number == 5 and dict(fields(_bytes(value))).get(2):
            raise ValueError("it has a denormalizer, which is not supported")
    model = SentencePieceModel(
        kind=_kind(trainer),
        pieces=pieces,
        scores=scores,
        types=types,
        unknown=_unknown_id(types),
        unknown_surface=_text(trainer.get(44, SentencePieceModel.unknown_surface.encode())),
        byte_fallback=_flag(trainer, 35, default=False),
        charsmap=Charsmap.read(_bytes(normalizer.get(2, b""))),
        add_dummy_prefix=_flag(normalizer, 3, default=True),
        remove_extra_whitespaces=_flag(normalizer, 4, default=True),
        escape_whitespaces=_flag(normalizer, 5, default=True),
    )
    _check(model, trainer)
    return model


def _piece(message: bytes) -> tuple[str, float, PieceType]:
    """Read one piece: its text (1), its score (2) and its type (3)."""
    piece, score, kind = b"", 0.0, 1
    for number, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            piece = value
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            (score,) = struct.unpack("<f", value)
        elif number == 3 and isinstance(value, int):
            kind = value
        elif number <= 3:
            raise ValueError("a piece lacks its text, score or type")
    if not 1 <= kind <= len(PieceType):
        raise ValueError(f"a piece has the unknown type {kind}")
    if not 0 < len(piece) <= MAX_PIECE_BYTES:
        raise ValueError(f"a piece has {len(piece):,} bytes, not 1 to {MAX_PIECE_BYTES:,}")
    if not math.isfinite(score) or abs(score) > MAX_SCORE:
        raise ValueError(f"a piece has the invalid score {score:g}")
    return _text(piece), score, PieceType(kind)


def _check(model: SentencePieceModel, trainer: Mapping[int, Value]) -> None:
    """Raise ValueError for inconsistent pieces and unsupported settings."""
    if len(set(model.pieces)) != len(model.pieces):
        ((twice, _),) = Counter(model.pieces).most_common(1)
        raise ValueError(f"it has the piece {brief(twice)} twice")
    if PieceType.NORMAL not in model.types:
        raise ValueError("it has no normal pieces")
    found = {model.pieces[number] for number in model.of_type(PieceType.BYTE)}
    if model.byte_fallback and found != set(byte_fallbacks()):
        raise ValueError("its byte pieces are not the 256 from <0x00> to <0xFF>")
    if found and not model.byte_fallback:
        raise ValueError("it has byte pieces, but byte_fallback is off")
    if model.kind == "bpe" and PieceType.UNUSED in model.types:
        raise ValueError("it is a BPE model with unused pieces, which is not supported")
    if _flag(trainer, 24, default=False):
        raise ValueError("it sets treat_whitespace_as_suffix, which is not supported")


def _unknown_id(types: list[PieceType]) -> int:
    if types.count(PieceType.UNKNOWN) != 1:
        raise ValueError(f"it has {types.count(PieceType.UNKNOWN)} unknown pieces instead of one")
    return types.index(PieceType.UNKNOWN)


def _kind(trainer: Mapping[int, Value]) -> Literal["unigram", "bpe"]:
    number = trainer.get(3, 1)
    if number not in (1, 2):
        raise ValueError(f"it is of model type {number!r}; unigram (1) and BPE (2) are supported")
    return "unigram" if number == 1 else "bpe"


def _flag(table: Mapping[int, Value], number: int, default: bool) -> bool:
    value = table.get(number, int(default))
    if not isinstance(value, int):
        raise ValueError("a setting is neither true nor false")
    return bool(value)


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field holds a number instead of bytes")
    return value


def _text(value: Value) -> str:
    return _bytes(value).decode("utf-8")  # UnicodeDecodeError is a ValueError
