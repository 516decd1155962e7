"""Text <-> tokens: tokenizers of seven kinds on top of the `tokenizers` library and its `tokenizer.json`.

Five kinds are lossless, `decode(encode(x)) == x` for every text in NFC:

- `bpe` (Sennrich et al. 2016) and `unigram` (Kudo 2018), over the 256 bytes of UTF-8 as an alphabet, so that no
  script is unknown; a space is prepended to the text and removed again, so that a word has the same pieces at the
  start of a sentence as within it;
- `character`: the characters of the training text, and bytes for any other;
- `feature`: the same, and a token for each feature of a word, as in `Kalb N;DAT;SG`;
- `byte`: the 256 bytes, token = byte + 3.

Two are not, and have `<unk>`: `wordpiece` (Schuster and Nakajima 2012, with BERT's pre-tokenization) and `word`
(separated by spaces). A tokenizer is completely defined by its JSON file.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, Self

import pydantic
import tokenizers
from tokenizers import models, pre_tokenizers

from transduce.config import Config, Table
from transduce.text.lines import denormalised_offset, normalise
from transduce.text.tokenizer.base import BaseTokenizer, encoding_errors, wrap_errors
from transduce.text.tokenizer.safety import ESCAPED_WORD, check_own_components
from transduce.text.tokenizer.special import (
    BYTE_OF,
    END,
    LOSSLESS,
    MASK,
    PAD,
    SPELLING,
    START,
    UNKNOWN,
    Kind,
    byte_fallbacks,
    min_vocab_size,
    read_byte_symbols,
    sentinel_pieces,
    special_pieces,
    tagged_language,
)

SPACE_MARK = "▁"
"""Stands for a space in the output of `pieces`."""

_PROBE = "  ä 東京 </s>\t1 "
"""A text that every lossless tokenizer must reproduce, also one that lowercases."""

_BYTE_PIECE = re.compile("^<0x[0-9A-F]{2}>$")
"""A byte of a character that a character tokenizer lacks."""

_ESCAPED_WORD = re.compile(ESCAPED_WORD)

WITH_FOLDER = ("folder", "joint", "min_frequency", "extend")
"""Settings that are valid together with `folder`."""


class TokenizerConfig(Config):
    """Tokenizers of both sides."""

    kind: Kind = "bpe"
    """bpe, unigram, character, feature and byte are lossless; wordpiece and word have an unknown token. feature: the
    characters of words, and a token for each feature (`Kalb N;DAT;SG`)."""

    vocab_size: int = pydantic.Field(default=8000, gt=0, le=1_000_000)
    """Maximum vocabulary size of one tokenizer, special tokens and the 256 bytes included; a small corpus may give
    fewer tokens. A byte tokenizer always has 259."""

    joint: bool = True
    """One tokenizer for both sides (required by shared embeddings), or one for each."""

    source_kind: Kind | None = None
    """Kind of the source tokenizer if it differs from `kind`; needs `joint = false`."""

    target_kind: Kind | None = None
    """Kind of the target tokenizer if it differs from `kind`; needs `joint = false`."""

    min_frequency: int = pydantic.Field(default=2, ge=1, le=1_000_000)
    """Minimum frequency of a word (kind word) or a pair of pieces (bpe and wordpiece) to become a token."""

    lowercase: bool = False
    """Lowercase all text first; then no kind is lossless."""

    sentinels: int | None = pydantic.Field(default=None, ge=0, le=10_000)
    """Number of sentinel tokens (`<extra_id_0>`, …), counted in vocab_size; 100 by default if
    data.objective = span_corruption."""

    folder: str | None = None
    """A run or model folder whose tokenizers are used instead of training new ones; of the settings above, only joint
    and min_frequency then apply."""

    extend: int | None = pydantic.Field(default=None, ge=1, le=1_000_000)
    """Maximum number of pieces to add to the tokenizers of `folder`, learned from the corpus; old tokens are kept."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if self.folder is not None:
            self._check_with_folder()
            return self
        if self.extend is not None:
            raise ValueError("extend needs existing tokenizers; set folder, or use vocab_size")
        source, target = self.kinds
        if self.joint and source != target:
            raise ValueError(f"a joint tokenizer cannot be both {source} and {target}; set joint = false")
        for kind in (source, target):
            smallest = min_vocab_size(kind) + (self.sentinels or 0)
            if kind != "byte" and self.vocab_size < smallest:
                what = "special pieces and all bytes" if kind in LOSSLESS else "special pieces and one word"
                raise ValueError(f"vocab_size = {self.vocab_size} is too small: {what} alone need {smallest}")
        return self

    def _check_with_folder(self) -> None:
        for name, field in type(self).model_fields.items():
            if name not in WITH_FOLDER and getattr(self, name) != field.default:
                raise ValueError(f"{name} cannot be set together with folder = {self.folder}; leave it out")

    def to_table(self) -> Table:
        """Return plain values; training settings are left out if `folder` is set."""
        table = super().to_table()
        return table if self.folder is None else {name: table[name] for name in WITH_FOLDER if name in table}

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """The kinds of source and target."""
        return self.source_kind or self.kind, self.target_kind or self.kind


class Tokenizer(BaseTokenizer):
    """A trained tokenizer. Special tokens are never parsed from text: "</s>" in a text is four characters."""

    kind: Kind
    size: int
    """Vocabulary size; tokens are 0 … size - 1."""
    mask: int | None
    """The mask token; None unless the tokenizer was trained for a text encoder."""
    sentinels: list[int]
    """Sentinel tokens in order; most tokenizers have none."""
    tags: dict[str, int]
    """Tag of each target language; most tokenizers have none."""
    target_prefix: tuple[int, ...] = ()
    """Tokens that every target starts with; only imported tokenizers have any."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        """Wrap a library tokenizer; raise ValueError if it is not one of `train_tokenizer`."""
        self.kind = _kind_of(library)
        vocabulary = library.get_vocab(with_added_tokens=True)
        _check(library, self.kind, vocabulary)
        library.encode_special_tokens = True  # not saved in the file: without it, text could contain special tokens
        self._library = library
        self._reserved = frozenset((*_sentinels_of(library), MASK))
        self._pieces = [piece for piece, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
        self.size = len(vocabulary)
        self.pad, self.start, self.end = vocabulary[PAD], vocabulary[START], vocabulary[END]
        self.unknown = None if self.kind in LOSSLESS else vocabulary[UNKNOWN]
        self.mask = vocabulary.get(MASK)
        self.tags = _tags_of(library)
        self.sentinels = [vocabulary[piece] for piece in _sentinels_of(library)]
        self._skipped = {self.pad, self.start, self.end, *self.tags.values()}
        if self.kind in LOSSLESS and self.decode(self.encode(_PROBE)) != _PROBE:
            raise ValueError("it is not lossless")

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={self.size})"

    def sides(self) -> tuple[Self, Self]:
        """Return the source and the target tokenizer of a joint one."""
        return self, self

    def without_languages(self) -> Self:
        """Return the tokenizer without language tags of its own; only imported ones have any."""
        return self

    @property
    def reads_tags(self) -> bool:
        """Whether a language tag at the beginning of a text is parsed; use `--target-language` instead."""
        return False

    def split_tag(self, text: str) -> tuple[str, str]:
        """Return the language tag that a text begins with, and the rest; only imported tokenizers parse tags."""
        return "", text

    def count_tags(self, tokens: Sequence[int]) -> int:
        """Return the number of such tags at the beginning."""
        return 0

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without start or end."""
        with encoding_errors():
            return list(self._library.encode(normalise(text), add_special_tokens=False).ids)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a text, and the characters (from, up to) of each."""
        read = normalise(text)
        with encoding_errors():
            encoding = self._library.encode(read, add_special_tokens=False)
        places = [(int(start), int(end)) for start, end in encoding.offsets]
        if read != text:
            places = [(denormalised_offset(text, start), denormalised_offset(text, end)) for start, end in places]
        return list(encoding.ids), places

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text; the same as `encode` one by one, but faster."""
        with encoding_errors():
            encodings = self._library.encode_batch_fast([normalise(text) for text in texts], add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without padding, start, end and tags; invalid UTF-8 becomes U+FFFD.

        An unknown word stays visible as `<unk>`.
        """
        shown = [token for token in tokens if token not in self._skipped]
        return str(self._library.decode(shown, skip_special_tokens=False))

    def settled(self, text: str) -> str:
        """Return what no further token can change in a decoded text."""
        text = text.rstrip("\ufffd")  # half a character
        return text.rpartition(" ")[0] if self.kind == "wordpiece" else text  # which may still remove a space

    @property
    def vocabulary(self) -> list[str]:
        """Every piece as in the tokenizer's file, by token; all are distinct."""
        return list(self._pieces)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return each token in readable form: spaces as "▁", incomplete UTF-8 as `<0xNN>`."""
        return [self._pieces[token] if token in self._skipped else self._show(self._pieces[token]) for token in tokens]

    def _show(self, piece: str) -> str:
        if (piece == UNKNOWN and self.unknown is not None) or piece in self._reserved:
            return piece
        if self.kind == "word":
            return _ESCAPED_WORD.sub("", piece)
        if self.kind in ("bpe", "unigram", "byte"):
            piece = read_byte_symbols(piece)
        return piece.replace(" ", SPACE_MARK)

    def words(self, tokens: Sequence[int]) -> list[int | None]:
        """Return the word index in `decode(tokens)` of each token; None for white space and special tokens.

        Words are separated by spaces. If the text is known, use `words_of`.
        """
        visible = [token not in self._skipped for token in tokens]
        if self.kind == "word":
            return [count - 1 if seen else None for count, seen in zip(accumulate(visible), visible, strict=True)]
        if self.kind == "wordpiece":  # only its decoder knows where spaces are
            counts = [len(self.decode(tokens[: place + 1]).split()) for place in range(len(tokens))]
            return [count - 1 if seen else None for count, seen in zip(counts, visible, strict=True)]
        written = [b"" if token in self._skipped else self._bytes(self._pieces[token]) for token in tokens]
        if self.kind in SPELLING:
            self._without_broken_bytes(tokens, written)
        owners: list[int | None] = []  # of every byte
        word, inside = -1, False
        for character in b"".join(written).decode("utf-8", errors="surrogateescape"):
            word += not inside and not character.isspace()
            inside = not character.isspace()
            owners += [word if inside else None] * len(character.encode("utf-8", errors="surrogateescape"))
        ends = list(accumulate(map(len, written), initial=0))
        own = [owners[start:end] for start, end in pairwise(ends)]
        return [next((owner for owner in several if owner is not None), None) for several in own]

    def _without_broken_bytes(self, tokens: Sequence[int], written: list[bytes]) -> None:
        """Replace consecutive bytes that are invalid UTF-8: `decode` writes one U+FFFD for each, never a space."""
        visible = [place for place, token in enumerate(tokens) if token not in self._skipped]
        for are_bytes, row in groupby(visible, key=lambda place: bool(_BYTE_PIECE.match(self._pieces[tokens[place]]))):
            places = [*row] if are_bytes else []
            try:
                b"".join(written[place] for place in places).decode("utf-8")
            except UnicodeDecodeError:
                for place in places:
                    written[place] = b"?"

    def words_of(self, text: str) -> list[int | None]:
        """Return the word index in a text of each token of `encode(text)`; exact for WordPiece too."""
        if self.kind != "wordpiece":
            return self.words(self.encode(text))
        text = normalise(text)
        begins = [word.start() for word in re.finditer(r"\S+", text)]
        offsets = self._library.encode(text, add_special_tokens=False).offsets
        return [bisect_right(begins, begin) - 1 for begin, _ in offsets]

    def _bytes(self, piece: str) -> bytes:
        """Return the bytes of a piece of a lossless tokenizer; none for a reserved one."""
        if piece in self._reserved:
            return b""
        if self.kind not in SPELLING:
            return bytes(BYTE_OF[symbol] for symbol in piece)
        return bytes([int(piece[3:5], 16)]) if _BYTE_PIECE.match(piece) else piece.encode()

    def to_json(self) -> str:
        """Return the text of `tokenizer.json`; the same tokenizer always gives the same text."""
        return str(self._library.to_str(pretty=False))

    @classmethod
    def from_json(cls, text: str, where: str) -> Self:
        """Read the text of a `tokenizer.json`; `where` names it in errors."""
        with wrap_errors(where, "a tokenizer trained by transduce", "copy the right file"):
            return cls(_parse(text))


# Checks of a `tokenizer.json`.


def _parse(text: str) -> tokenizers.Tokenizer:
    """Return the library tokenizer; reject settings that the library accepts but that would change tokens."""
    content: Any = json.loads(text)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise ValueError("not a tokenizer.json")
    if any(content.get(setting) for setting in ("truncation", "padding", "post_processor")):
        raise ValueError("it truncates, pads or post-processes texts")
    if any(content["model"].get(setting) for setting in ("dropout", "alpha", "nbest_size")):
        raise ValueError("it tokenizes at random")
    check_own_components(content)
    return tokenizers.Tokenizer.from_str(text)


def _kind_of(library: tokenizers.Tokenizer) -> Kind:
    """Return the kind of a library tokenizer; raise ValueError for other models."""
    model = library.model
    if isinstance(model, models.BPE):
        if model.byte_fallback:
            return "feature" if model.ignore_merges else "character"
        return "byte" if isinstance(library.pre_tokenizer, pre_tokenizers.ByteLevel) else "bpe"
    by_model: dict[type, Kind] = {models.Unigram: "unigram", models.WordPiece: "wordpiece", models.WordLevel: "word"}
    if type(model) not in by_model:
        raise ValueError(f"its model is {type(model).__name__}")
    return by_model[type(model)]


def _check(library: tokenizers.Tokenizer, kind: Kind, vocabulary: dict[str, int]) -> None:
    """Raise ValueError unless tokens are numbered from 0 without gaps and every text can be encoded."""
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ValueError("its tokens are not numbered from 0 without gaps")
    if "" in vocabulary:
        raise ValueError("one of its pieces is empty")
    added = library.get_added_tokens_decoder().values()
    special, needed = (
        {token.content for token in added if token.special},
        {*special_pieces(kind), *_sentinels_of(library)},
    )
    tags = {piece for piece in special if tagged_language(piece) is not None}
    if special - tags - {MASK} != needed or len(added) != len(special):
        raise ValueError(
            f"its special pieces are {', '.join(sorted(special)) or 'none'}, not {', '.join(sorted(needed))}"
        )
    if kind in LOSSLESS and not vocabulary.keys() >= set(byte_fallbacks() if kind in SPELLING else BYTE_OF):
        raise ValueError("it lacks some of the 256 bytes")
    if kind in ("bpe", "unigram", "byte") and not all(BYTE_OF.keys() >= set(p) for p in vocabulary.keys() - special):
        raise ValueError("it has pieces that are not made of bytes")
    if kind not in LOSSLESS and getattr(library.model, "unk_token", None) != UNKNOWN:
        raise ValueError("it has no unknown token")


def _tags_of(library: tokenizers.Tokenizer) -> dict[str, int]:
    """Return the language tags: language -> token."""
    added = library.get_added_tokens_decoder().items()
    found = {tagged_language(token.content): number for number, token in added if token.special}
    return {language: number for language, number in found.items() if language is not None}


def _sentinels_of(library: tokenizers.Tokenizer) -> list[str]:
    """Return the reserved sentinels in order; a word of the corpus that is spelled like one does not count."""
    added = {token.content for token in library.get_added_tokens_decoder().values() if token.special}
    return [piece for piece in sentinel_pieces(len(added)) if piece in added]
