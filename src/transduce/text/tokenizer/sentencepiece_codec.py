"""Encode and decode text with a SentencePiece model, with the same pieces as SentencePiece itself.

Text is normalized here (charsmap, spaces as U+2581) and segmented by `tokenizers`, whose vocabulary contains only the
pieces that may occur in text: a typed `</s>` or `<0x41>` is segmented as ordinary characters.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tokenizers
from tokenizers import models

from transduce.text.tokenizer.sentencepiece import PieceType, SentencePieceModel
from transduce.text.tokenizer.special import byte_fallbacks

SPACE = "\u2581"
"""Stands for a space in pieces."""

MAX_EXACT = 10_000
"""Longest text, in characters, whose ties are broken exactly as in SentencePiece, which is slow."""

_UNKNOWN = ""
"""Name of the unknown piece in the library: one that cannot occur in text."""

_IN_TEXT = (PieceType.NORMAL, PieceType.USER_DEFINED)

_DEFINED_SCORE = -0.1
"""Score of user-defined pieces: above all others, so that they always win."""


class SentencePieceCodec:
    """Encodes and decodes with one model; tokens are the model's own ids."""

    def __init__(self, model: SentencePieceModel) -> None:
        self.model = model
        self._library, self._numbers = to_library(model)
        self._number_of = {model.pieces[number]: number for number in self._numbers[1:]}
        self._types = dict(zip(model.pieces, model.types, strict=True))
        self._space = SPACE if model.escape_whitespaces else " "
        self._defined = _any_of([model.pieces[one] for one in model.of_type(PieceType.USER_DEFINED)])
        byte_of = {model.pieces[one]: one for one in model.of_type(PieceType.BYTE)}
        self._bytes = [byte_of[piece] for piece in byte_fallbacks()] if byte_of else []
        self._exact: ExactUnigram | None = None
        self._repetitions: list[str] = []
        """Strings in a text for which the library may break ties differently from SentencePiece."""
        if model.kind == "unigram":
            scores = _scores(model)
            self._exact, self._repetitions = ExactUnigram(scores, _worst(model)), repetitions(scores)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text."""
        prepared = [self.prepare(text) for text in texts]
        # byte fallback needs offsets, which the fast variant lacks
        encode = self._library.encode_batch if self._bytes else self._library.encode_batch_fast
        encodings = encode(prepared, add_special_tokens=False)
        return [self._tokens(text, encoding) for text, encoding in zip(prepared, encodings, strict=True)]

    def _tokens(self, text: str, encoding: tokenizers.Encoding) -> list[int]:
        if (
            self._exact is not None
            and len(text) <= MAX_EXACT
            and any(repetition in text for repetition in self._repetitions)
        ):
            return list(self._numbered(self._exact.cut(text)))
        if self._bytes:
            return list(self._numbered([text[begin:end] for begin, end in encoding.offsets]))
        return [self._numbers[token] for token in encoding.ids]

    def _numbered(self, pieces: Sequence[str]) -> Iterator[int]:
        """Yield the tokens of pieces; unknown ones as bytes, or adjacent ones as one unknown token."""
        was_unknown = False
        for piece in pieces:
            number = self._number_of.get(piece)
            if number is not None:
                yield number
            elif self._bytes:
                yield from (self._bytes[byte] for byte in piece.encode("utf-8"))
            elif not was_unknown:
                yield self.model.unknown
            was_unknown = number is None

    def prepare(self, text: str) -> str:
        """Normalize a text: charsmap applied, extra spaces removed, spaces replaced by U+2581."""
        collapse = self.model.remove_extra_whitespaces
        written = self._replaced(text)
        if collapse:
            written = re.sub(" +", " ", written.lstrip(" "))
        if not text or (collapse and not written):
            return ""
        if self.model.add_dummy_prefix:
            written = " " + written
        written = written.replace(" ", self._space)
        return written.rstrip(self._space) if collapse else written

    def _replaced(self, text: str) -> str:
        """Apply the charsmap, except to user-defined pieces."""
        rules = self.model.charsmap
        if self._defined is None:
            return rules.apply(text)
        written: list[str] = []
        begin = 0
        for found in self._defined.finditer(text):
            written += rules.apply(text[begin : found.start()]), found.group()
            begin = found.end()
        return "".join([*written, rules.apply(text[begin:])])

    def decode(self, pieces: Sequence[str]) -> str:
        """Return the text of pieces. Unknown strings are kept unchanged; bytes that are invalid UTF-8 become U+FFFD."""
        model = self.model
        at_beginning = model.add_dummy_prefix or model.remove_extra_whitespaces
        written: list[str] = []
        held = bytearray()
        for piece in pieces:
            kind = self._types.get(piece)
            if kind is PieceType.BYTE:
                held.append(int(piece[3:5], 16))
                continue
            written.append(_text(held))
            held.clear()
            at_beginning = at_beginning and not any(written)
            if kind is None:
                written.append(piece)
            elif kind is PieceType.UNKNOWN:
                written.append(model.unknown_surface)
            elif kind is not PieceType.CONTROL:
                shorter = piece.removeprefix(SPACE) if at_beginning else piece
                at_beginning = at_beginning and (shorter == piece or model.remove_extra_whitespaces)
                written.append(shorter.replace(SPACE, " "))
        return "".join([*written, _text(held)])


def to_library(model: SentencePieceModel) -> tuple[tokenizers.Tokenizer, list[int]]:
    """Return a library tokenizer for normalized text, and the model's id of each of its tokens.

    It contains the unknown piece, as token 0, and the pieces that may occur in text.
    """
    reachable = [one for one, kind in enumerate(model.types) if kind in _IN_TEXT]
    if model.kind == "unigram":
        scores = _scores(model)
        table = [(_UNKNOWN, _worst(model)), *scores.items()]
        library = tokenizers.Tokenizer(models.Unigram(table, unk_id=0))
    else:
        vocabulary = {_UNKNOWN: 0} | {model.pieces[one]: token for token, one in enumerate(reachable, start=1)}
        library = tokenizers.Tokenizer(
            models.BPE(vocab=vocabulary, merges=_merges(model), unk_token=_UNKNOWN, fuse_unk=True)
        )
    defined = [model.pieces[one] for one in model.of_type(PieceType.USER_DEFINED)]
    library.add_tokens([tokenizers.AddedToken(piece, normalized=False, special=False) for piece in defined])
    return library, [model.unknown, *reachable]


def _scores(model: SentencePieceModel) -> dict[str, float]:
    """Score of each piece that may occur in text, in a Unigram model."""
    return {
        piece: score if kind is PieceType.NORMAL else _DEFINED_SCORE
        for piece, score, kind in zip(model.pieces, model.scores, model.types, strict=True)
        if kind in _IN_TEXT
    }


def _worst(model: SentencePieceModel) -> float:
    return min(model.scores[one] for one in model.of_type(PieceType.NORMAL))


def _merges(model: SentencePieceModel) -> list[tuple[str, str]]:
    """All merges of two pieces into a third, best score first; SentencePiece finds them during its search."""
    normal = model.of_type(PieceType.NORMAL)
    known = {model.pieces[one] for one in normal}
    ordered = [model.pieces[one] for one in sorted(normal, key=lambda one: -model.scores[one])]
    return [
        (piece[:cut], piece[cut:])
        for piece in ordered
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    ]


def _any_of(texts: Sequence[str]) -> re.Pattern[str] | None:
    """Pattern of any of these texts, longest match first."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True)))) if texts else None


def _text(held: bytearray) -> str:
    """Decode bytes as UTF-8; each invalid byte becomes one U+FFFD."""
    found = bytes(held).decode("utf-8", errors="surrogateescape")
    return re.sub("[\udc80-\udcff]", "\ufffd", found)


UNKNOWN_PENALTY = 10.0
"""Score of an unknown character, below the lowest score of a piece."""


def repetitions(pieces: Iterable[str]) -> list[str]:
    """Return strings of which a text must contain one for two of its segmentations to have equal scores.

    Two segmentations have the same pieces in different order only if a piece repeats some string, "00", and the text
    contains that string once more, "000".
    """
    found: dict[str, str] = {}
    for piece in sorted(pieces, key=len):
        root = piece[: (piece + piece).index(piece, 1)]
        if root != piece:
            found.setdefault(root, piece + root)
    return list(found.values())


class ExactUnigram:
    """The best segmentation with a Unigram model (Kudo 2018), in the floating-point arithmetic of SentencePiece.

    `tokenizers` is faster, but adds scores in double precision, SentencePiece in single. That matters for ties: "1000"
    may be "1 0 00" or "1 00 0", and SentencePiece's choice depends on rounding. Only such texts are segmented here.
    """

    def __init__(self, scores: Mapping[str, float], worst: float) -> None:
        """`worst` is the lowest score of a normal piece."""
        self._scores = dict(scores)
        self._longest = max(map(len, scores))
        self._unknown = _single(worst - UNKNOWN_PENALTY)

    def cut(self, text: str) -> list[str]:
        """Return the pieces of a text; characters that no piece covers are returned one by one."""
        best = array("f", [0.0]) * (len(text) + 1)
        begins = [-1] * (len(text) + 1)
        """Start of the last piece of the best segmentation up to each position."""
        for begin in range(len(text)):
            for end in range(begin + 1, min(len(text), begin + self._longest) + 1):
                score = self._scores.get(text[begin:end])
                if score is None and end == begin + 1:
                    score = self._unknown
                if score is not None:
                    total = _single(best[begin] + score)
                    if begins[end] < 0 or total > best[end]:
                        best[end], begins[end] = total, begin
        pieces, end = [], len(text)
        while end > 0:
            pieces.append(text[begins[end] : end])
            end = begins[end]
        return pieces[::-1]


def _single(number: float) -> float:
    """Round to single precision."""
    return array("f", [number])[0]
