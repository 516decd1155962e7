"""SentencePiece model files (`.model`, `.spm`): pieces with scores, and how text is prepared for them.

SentencePiece (Kudo and Richardson 2018) keeps a trained model in one protocol-buffer message. It is read here without
its library, whose C++ reader has had holes, and strictly: a file that the library would read in another way than we do
is refused. `text/sentencepiece_codec.py` turns text into these pieces and back.
"""

from __future__ import annotations

import enum
import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from transduce.errors import ModelFolderError, brief
from transduce.text.charsmap import Charsmap
from transduce.text.piece import byte_fallbacks
from transduce.text.protobuf import Value, fields

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
        raise ModelFolderError(f"{where}: is not a SentencePiece model that can be read ({reason})") from None


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
            raise ValueError("it changes text after decoding, which is not supported")
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
            raise ValueError("a piece has no text, score and type")
    if not 1 <= kind <= len(PieceType):
        raise ValueError(f"a piece is of type {kind}, which is not known")
    if not 0 < len(piece) <= MAX_PIECE_BYTES:
        raise ValueError(f"a piece has {len(piece):,} bytes, not 1 to {MAX_PIECE_BYTES:,}")
    if not math.isfinite(score) or abs(score) > MAX_SCORE:
        raise ValueError(f"a piece has the score {score:g}")
    return _text(piece), score, PieceType(kind)


def _check(model: SentencePieceModel, trainer: Mapping[int, Value]) -> None:
    """Raise ValueError for pieces that contradict each other, and for what is not supported."""
    if len(set(model.pieces)) != len(model.pieces):
        ((twice, _),) = Counter(model.pieces).most_common(1)
        raise ValueError(f"it has the piece {brief(twice)} twice")
    if PieceType.NORMAL not in model.types:
        raise ValueError("it has no piece that text is made of")
    found = {model.pieces[number] for number in model.of_type(PieceType.BYTE)}
    if model.byte_fallback and found != set(byte_fallbacks()):
        raise ValueError("its pieces for bytes are not the 256 from <0x00> to <0xFF>")
    if found and not model.byte_fallback:
        raise ValueError("it has pieces for bytes that it does not use")
    if model.kind == "bpe" and PieceType.UNUSED in model.types:
        raise ValueError("it is a BPE model with pieces that were taken out, which is not supported")
    if _flag(trainer, 24, default=False):
        raise ValueError("it puts spaces behind words, which is not supported")


def _the_unknown(types: list[PieceType]) -> int:
    if types.count(PieceType.UNKNOWN) != 1:
        raise ValueError(f"it has {types.count(PieceType.UNKNOWN)} pieces for the unknown, not one")
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
        raise ValueError("there is a number where a message should be")
    return value


def _text(value: Value) -> str:
    return _bytes(value).decode("utf-8")  # UnicodeDecodeError is a ValueError
