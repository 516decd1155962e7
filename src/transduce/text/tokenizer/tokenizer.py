"""Text ⇄ tokens: one tokenizer, of any kind, over the `tokenizers` library and its `tokenizer.json`.

Six kinds. Four are lossless, `decode(encode(x)) == x` for every text in NFC:

- `bpe` (Sennrich et al. 2016) and `unigram` (Kudo 2018), over the 256 bytes of UTF-8 as an alphabet, so that no
  script is unknown; one space is put before the text and taken off again, so that a word has the same pieces at the
  start of a sentence as within it;
- `character`: the characters of the training text, and bytes for any other;
- `byte`: the 256 bytes, token = byte + 3.

Two are not, and have `<unk>`: `wordpiece` (Schuster and Nakajima 2012, with BERT's splitting) and `word` (whatever
stands between spaces). All that is known of a tokenizer is read from its JSON; there is no second file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Self

import pydantic
import tokenizers

from transduce.config import Config, Table
from transduce.storage.atomic import atomic_file
from transduce.text.lines import denormalised_offset, normalise
from transduce.text.tokenizer.batch_encoding import BaseTokenizer
from transduce.text.tokenizer.file import check, kind_of, parse, read_file, sentinels_of, tags_of, wrap_errors
from transduce.text.tokenizer.language_tag import NAME
from transduce.text.tokenizer.special import (
    BYTE_OF,
    END,
    LOSSLESS,
    MASK,
    PAD,
    START,
    UNKNOWN,
    Kind,
    min_vocab_size,
    read_byte_symbols,
)

SPACE_MARK = "▁"
"""Stands for a space in what `pieces` shows."""

_PROBE = "  ä 東京 </s>\t1 "
"""What every lossless tokenizer must give back, one that makes lower case too."""

_BYTE_PIECE = re.compile("^<0x[0-9A-F]{2}>$")
"""How a character tokenizer spells a byte of a character that it lacks."""

SPELLED = rf"(?:<(?:pad|s|/s|unk|mask|extra_id_\d+)>|>>{NAME}<<)"
"""What a special piece looks like, the tag of a language too."""

_SPELLED_SPECIAL = re.compile(rf"^\\(?=\\*{SPELLED}$)")

WITH_FOLDER = ("folder", "joint", "min_frequency", "extend")
"""Settings of tokenizers that are not learned from nothing."""


class TokenizerConfig(Config):
    """What the tokens of both sides are."""

    kind: Kind = "bpe"
    """bpe, unigram, character and byte lose nothing of any text; wordpiece and word have an unknown token."""

    vocab_size: int = pydantic.Field(default=8000, gt=0, le=1_000_000)
    """Most tokens of one tokenizer, special ones and the 256 bytes included; a small corpus may give fewer.
    A byte tokenizer always has 259."""

    joint: bool = True
    """One tokenizer for both sides (which shared embeddings need), or one for each."""

    source_kind: Kind | None = None
    """Kind of the source's tokenizer if it is another than `kind`; needs `joint = false`."""

    target_kind: Kind | None = None
    """Kind of the target's tokenizer if it is another than `kind`; needs `joint = false`."""

    min_frequency: int = pydantic.Field(default=2, ge=1, le=1_000_000)
    """How often a word (for word) or a pair of pieces (for bpe and wordpiece) must occur to become a token."""

    lowercase: bool = False
    """Make all text lower case first. What is lost is lost: no kind is lossless then."""

    sentinels: int | None = pydantic.Field(default=None, ge=0, le=10_000)
    """Tokens that stand for what was taken out of a text, `<extra_id_0>` and so on; of vocab_size. A hundred where
    data.objective = span_corruption needs them."""

    folder: str | None = None
    """A run or model folder whose tokenizers are used, instead of new ones that learn from the corpus; the settings
    above but joint and min_frequency then mean nothing."""

    extend: int | None = pydantic.Field(default=None, ge=1, le=1_000_000)
    """Most pieces to add to the tokenizers of `folder`, learned from the corpus; what was there stays as it was."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if self.folder is not None:
            self._refuse_learning()
            return self
        if self.extend is not None:
            raise ValueError("extend adds to tokenizers that are there; name their folder, or set vocab_size")
        source, target = self.kinds
        if self.joint and source != target:
            raise ValueError(f"one joint tokenizer cannot be {source} and {target} at once; set joint = false")
        for kind in (source, target):
            smallest = min_vocab_size(kind) + (self.sentinels or 0)
            if kind != "byte" and self.vocab_size < smallest:
                what = "special pieces and all bytes" if kind in LOSSLESS else "special pieces and one word"
                raise ValueError(f"vocab_size = {self.vocab_size} is too small: {what} are {smallest} already")
        return self

    def _refuse_learning(self) -> None:
        for name, field in type(self).model_fields.items():
            if name not in WITH_FOLDER and getattr(self, name) != field.default:
                raise ValueError(f"the tokenizers of {self.folder} are used as they are; leave out {name}")

    def to_table(self) -> Table:
        """Return plain values; what says how to learn a tokenizer is left out where none is learned."""
        table = super().to_table()
        return table if self.folder is None else {name: table[name] for name in WITH_FOLDER if name in table}

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """The kinds of source and target."""
        return self.source_kind or self.kind, self.target_kind or self.kind


class Tokenizer(BaseTokenizer):
    """A trained tokenizer. Special pieces are never read from text: "</s>" typed by a person is four characters."""

    kind: Kind
    size: int
    """How many tokens there are; they are 0 … size - 1."""
    mask: int | None
    """Token of a piece that was hidden; None where the tokenizer was not made for a reader."""
    sentinels: list[int]
    """Tokens that stand for what was taken out of a text, in their order; most tokenizers have none."""
    tags: dict[str, int]
    """Token of each language that can be asked for; most tokenizers have none."""
    target_prefix: tuple[int, ...] = ()
    """What every answer begins with; only imported tokenizers have something there."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        """Wrap a tokenizer of the library; raises ValueError when it is not one that `train_tokenizer` makes."""
        self.kind = kind_of(library)
        vocabulary = library.get_vocab(with_added_tokens=True)
        check(library, self.kind, vocabulary)
        library.encode_special_tokens = True  # not saved in the file: without it, text could spell an end of sentence
        self._library = library
        self._reserved = frozenset((*sentinels_of(library), MASK))
        self._pieces = [piece for piece, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
        self.size = len(vocabulary)
        self.pad, self.start, self.end = vocabulary[PAD], vocabulary[START], vocabulary[END]
        self.unknown = None if self.kind in LOSSLESS else vocabulary[UNKNOWN]
        self.mask = vocabulary.get(MASK)
        self.tags = tags_of(library)
        self.sentinels = [vocabulary[piece] for piece in sentinels_of(library)]
        self._skipped = {self.pad, self.start, self.end, *self.tags.values()}
        if self.kind in LOSSLESS and self.decode(self.encode(_PROBE)) != _PROBE:
            raise ValueError("it does not give back the text it was given")

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={self.size})"

    def sides(self) -> tuple[Self, Self]:
        """Return the tokenizer of sources and that of targets, where one serves both."""
        return self, self

    def without_languages(self) -> Self:
        """Return the tokenizer without languages of its own; only imported ones have any."""
        return self

    @property
    def reads_tags(self) -> bool:
        """Whether a tag at the beginning of a text is read as one; users have `--target-language` for that."""
        return False

    def split_tag(self, text: str) -> tuple[str, str]:
        """Return the language tag that a text begins with, and the rest; only imported tokenizers have tags."""
        return "", text

    def count_tags(self, tokens: Sequence[int]) -> int:
        """Return how many tokens at the beginning are such tags."""
        return 0

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without start or end."""
        return list(self._library.encode(normalise(text), add_special_tokens=False).ids)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a text, and which of its characters (from, up to) each was made of."""
        read = normalise(text)
        encoding = self._library.encode(read, add_special_tokens=False)
        places = [(int(start), int(end)) for start, end in encoding.offsets]
        if read != text:
            places = [(denormalised_offset(text, start), denormalised_offset(text, end)) for start, end in places]
        return list(encoding.ids), places

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text; the same as `encode` one by one, but faster."""
        encodings = self._library.encode_batch_fast([normalise(text) for text in texts], add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without pad, start, end and tags; bytes that are no UTF-8 become U+FFFD.

        An unknown word stays visible as `<unk>`: a word that is missing must not look as if it had never been there.
        """
        shown = [token for token in tokens if token not in self._skipped]
        return str(self._library.decode(shown, skip_special_tokens=False))

    @property
    def decode_removes_spaces(self) -> bool:
        """Whether `decode` takes away spaces that stood there before the next token came."""
        return self.kind == "wordpiece"

    @property
    def vocabulary(self) -> list[str]:
        """Every piece as the tokenizer's file spells it, by token; no two are alike."""
        return list(self._pieces)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return each token as a person would like to see it: spaces as "▁", broken bytes as `<0xNN>`."""
        return [self._pieces[token] if token in self._skipped else self._show(self._pieces[token]) for token in tokens]

    def _show(self, piece: str) -> str:
        if (piece == UNKNOWN and self.unknown is not None) or piece in self._reserved:
            return piece
        if self.kind == "word":
            return _SPELLED_SPECIAL.sub("", piece)
        if self.kind in ("bpe", "unigram", "byte"):
            piece = read_byte_symbols(piece)
        return piece.replace(" ", SPACE_MARK)

    def words(self, tokens: Sequence[int]) -> list[int | None]:
        """Return which word of `decode(tokens)` each token is of, from 0; None for nothing but space, and special ones.

        Words are what stands between spaces. Of a text that is known, `words_of` tells it.
        """
        said = [token not in self._skipped for token in tokens]
        if self.kind == "word":
            return [count - 1 if is_said else None for count, is_said in zip(accumulate(said), said, strict=True)]
        if self.kind == "wordpiece":  # where its decoder puts spaces is known to the decoder alone
            counts = [len(self.decode(tokens[: place + 1]).split()) for place in range(len(tokens))]
            return [count - 1 if is_said else None for count, is_said in zip(counts, said, strict=True)]
        written = [b"" if token in self._skipped else self._bytes(self._pieces[token]) for token in tokens]
        if self.kind == "character":
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
        """Of bytes in a row that are no text together, `decode` writes a sign for each, never a space: so here too."""
        spoken = [place for place, token in enumerate(tokens) if token not in self._skipped]
        for are_bytes, row in groupby(spoken, key=lambda place: bool(_BYTE_PIECE.match(self._pieces[tokens[place]]))):
            places = [*row] if are_bytes else []
            try:
                b"".join(written[place] for place in places).decode("utf-8")
            except UnicodeDecodeError:
                for place in places:
                    written[place] = b"?"

    def words_of(self, text: str) -> list[int | None]:
        """Return which word of a text each token of `encode(text)` is of; WordPiece would not decode its spaces."""
        if self.kind != "wordpiece":
            return self.words(self.encode(text))
        text = normalise(text)
        begins = [word.start() for word in re.finditer(r"\S+", text)]
        offsets = self._library.encode(text, add_special_tokens=False).offsets
        return [bisect_right(begins, begin) - 1 for begin, _ in offsets]

    def _bytes(self, piece: str) -> bytes:
        """What a piece of a lossless tokenizer stands for; one that was reserved stands for nothing."""
        if piece in self._reserved:
            return b""
        if self.kind != "character":
            return bytes(BYTE_OF[symbol] for symbol in piece)
        return bytes([int(piece[3:5], 16)]) if _BYTE_PIECE.match(piece) else piece.encode()

    def to_json(self) -> str:
        """Return the text of `tokenizer.json`; the same tokenizer always gives the same text."""
        return str(self._library.to_str(pretty=False))

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, whole or not at all."""
        with atomic_file(Path(path)) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a `tokenizer.json` that `save` wrote."""
        return cls.from_json(read_file(Path(path)), str(path))

    @classmethod
    def from_json(cls, text: str, where: str) -> Self:
        """Read the text of a `tokenizer.json`; `where` names it in a refusal."""
        with wrap_errors(where, "a tokenizer made by transduce", "copy the right file there"):
            return cls(parse(text))
