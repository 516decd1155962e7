"""SentencePiece model files (`.model`, `.spm`): pieces with scores, and how text is prepared for them.

SentencePiece (Kudo and Richardson 2018) keeps a trained model in one protocol-buffer message. It is read here without
its library, whose C++ reader has had holes, and strictly: a file that the library would read in another way than we do
is rejected. `sentencepiece_codec.py` turns text into these pieces and back.
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

# Protocol-buffer messages, as far as reading a SentencePiece model needs them: the wire format, and no schema.
#
# A message is a row of fields: a key (the field's number and how it is written), then a number of 1 to 10 bytes, 4 or
# 8 bytes as they are, or a length and that many bytes (text, or a message within). What is cut short, or longer than
# what it stands in, is a ValueError.

Value = int | bytes

VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
"""How a field is written; 3 and 4 are groups, which nobody writes any more."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield (number, value) of every field of a message; 4 and 8 bytes are given as they stand."""
    place, size = 0, len(message)
    while place < size:
        key, place = _varint(message, place)
        number, way = key >> 3, key & 7
        if way == VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if way == SIZED:
            length, place = _varint(message, place)
        elif way in (FOUR, EIGHT):
            length = 4 if way == FOUR else 8
        else:
            raise ValueError(f"a field has the unknown wire type {way}")
        if length > size - place:
            raise ValueError(f"a field of {length:,} bytes is longer than the {size - place:,} that are left")
        yield number, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a number, seven bits a byte, the lowest first; return it and the place behind it."""
    if place < len(message) and message[place] < 0x80:  # nearly all have one byte
        return message[place], place + 1
    number = shift = 0
    for length, byte in enumerate(message[place : place + 10], start=1):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place + length
        shift += 7
    raise ValueError("a varint does not end")


# SentencePiece's "precompiled charsmap": which characters are written as which others before text is cut into pieces.
#
# It is a table of rules such as "ﬁ → fi" or "e + ◌́ → é", usually those of NFKC, frozen as they were when the model
# was trained, so that no newer Unicode changes what a model reads. In a file it is a double-array trie (Aoe 1989, in
# the layout of darts-clone) over the UTF-8 of what is replaced, and one string of all replacements. At each place of
# a text the longest rule applies; nothing is looked at twice.
#
# There are 200,000 rules, nearly all of them for letters with several accents, so they are looked up when a text
# needs them and remembered. What `tokenizers` has for such tables is another thing: it looks at a letter with its
# accents as a whole, takes the shortest rule, and so loses accents.

MAX_CHARSMAP_BYTES = 16 * 2**20
"""Largest table that is read; that of NFKC has a quarter of a megabyte."""
MAX_RULE = 32
"""Characters that a rule replaces at most; those of NFKC have four."""
MAX_REPLACEMENT = 256
"""Longest text that a rule writes, in bytes; those of NFKC have at most 33."""
MAX_REMEMBERED = 2**16

_LABEL, _VALUE, _IS_VALUE, _HAS_VALUE = 0x800000FF, 0x7FFFFFFF, 0x80000000, 0x100
"""Parts of a unit of the trie: the byte that leads to it, or its value and the mark of one; whether it has a value."""


class Charsmap:
    """Rules for characters. Most texts need those for one character only, for which Python has a fast way."""

    def __init__(self, units: tuple[int, ...] = (), texts: bytes = b"") -> None:
        self._units, self._texts = units, texts
        self._single = _Remembered(self)
        self._apart: set[tuple[str, str]] = set()
        """Neighbours that no rule joins."""

    @classmethod
    def read(cls, content: bytes) -> Charsmap:
        """Read what a model file holds, nothing for no rules; raises ValueError for what is none."""
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
        if len(self._single) + len(self._apart) > MAX_REMEMBERED:
            self._single.clear()
            self._apart.clear()
        if self._apart.issuperset(pairwise(text)):
            return text.translate(self._single)
        pairs = set(pairwise(text)) - self._apart
        joined = {pair for pair in pairs if self._goes_on(*pair)}
        self._apart |= pairs - joined
        return "".join(self._replaced(text)) if joined else text.translate(self._single)

    def longest(self, text: str, place: int) -> tuple[int, str | None]:
        """Return where the longest rule that applies at a place of a text ends, and what it writes there."""
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

    def _goes_on(self, first: str, second: str) -> bool:
        """Whether some rule begins with these two characters."""
        node = self._child(0, first)
        return node is not None and self._child(node, second) is not None

    def _child(self, node: int, character: str) -> int | None:
        """Go on from a node by the bytes of one character."""
        units = self._units
        for byte in character.encode("utf-8"):
            node = _base(node, units[node]) ^ byte
            if not byte or node >= len(units) or units[node] & _LABEL != byte:
                return None
        return node

    def _written(self, node: int) -> str | None:
        """What the rule that ends at a node writes, if one does."""
        place = _base(node, self._units[node])
        if not self._units[node] & _HAS_VALUE or place >= len(self._units) or not self._units[place] & _IS_VALUE:
            return None
        begin = self._units[place] & _VALUE
        return self._texts[begin : self._texts.index(b"\0", begin)].decode("utf-8")


class _Remembered(dict[int, str]):
    """What each character alone becomes, by its number, for `str.translate`."""

    def __init__(self, rules: Charsmap) -> None:
        self._rules = rules

    def __missing__(self, number: int) -> str:
        _, written = self._rules.longest(chr(number), 0)
        self[number] = chr(number) if written is None else written
        return self[number]


def _base(node: int, unit: int) -> int:
    """Where the children of a node are, each at its byte from there (by exclusive or); the value is at zero."""
    return node ^ ((unit >> 10) << ((unit & 0x200) >> 6))


MAX_BYTES = 64 * 2**20
"""Largest file that is read; vocabularies of 256,000 pieces have a tenth of it."""
MAX_PIECES = 1_000_000
MAX_PIECE_BYTES = 1024

MAX_SCORE = 1e6
"""Scores are logarithms of probabilities or ranks of merges; nothing sensible lies beyond."""


class PieceType(enum.IntEnum):
    """What a piece is; only normal and user-defined ones are found in text."""

    NORMAL = 1
    UNKNOWN = 2
    """Stands for what no piece covers; there is exactly one."""
    CONTROL = 3
    """Frames sentences, and never comes from text."""
    USER_DEFINED = 4
    """Is always one piece where its text stands, and is not normalised."""
    UNUSED = 5
    """Was taken out of the vocabulary, but keeps its number."""
    BYTE = 6
    """One of 256, for the characters that no piece covers."""


@dataclass(frozen=True)
class SentencePieceModel:
    """What a model file holds, as far as it decides which pieces a text has."""

    kind: Literal["unigram", "bpe"]
    pieces: list[str]
    scores: list[float]
    types: list[PieceType]
    unknown: int
    """Which piece stands for what no other covers."""
    unknown_surface: str = " \u2047 "
    """What is written for it."""
    byte_fallback: bool = False
    """Whether bytes stand for what no piece covers, so that nothing is unknown."""
    charsmap: Charsmap = field(default_factory=Charsmap)
    add_dummy_prefix: bool = True
    """Whether a space is put before the text, so that a word is the same at its beginning as within it."""
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    """Whether a space is written as U+2581 in pieces."""

    def of_type(self, wanted: PieceType) -> list[int]:
        """Return which pieces are of this type."""
        return [number for number, found in enumerate(self.types) if found == wanted]


def read_sentencepiece(content: bytes, where: str) -> SentencePieceModel:
    """Read the bytes of a model file; `where` names it in a refusal."""
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
            table |= dict(fields(_bytes(value)))  # of a field that stands there twice the last one counts
        elif number == 5 and dict(fields(_bytes(value))).get(2):
            raise ValueError("it has a denormalizer, which is not supported")
    model = SentencePieceModel(
        kind=_kind(trainer),
        pieces=pieces,
        scores=scores,
        types=types,
        unknown=_the_unknown(types),
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
    """Raise ValueError for pieces that contradict each other, and for what is not supported."""
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


def _the_unknown(types: list[PieceType]) -> int:
    if types.count(PieceType.UNKNOWN) != 1:
        raise ValueError(f"it has {types.count(PieceType.UNKNOWN)} unknown pieces instead of one")
    return types.index(PieceType.UNKNOWN)


def _kind(trainer: Mapping[int, Value]) -> Literal["unigram", "bpe"]:
    number = trainer.get(3, 1)
    if number == 1:
        return "unigram"
    if number == 2:
        return "bpe"
    raise ValueError(f"it is of model type {number!r}; unigram (1) and BPE (2) are supported")


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
