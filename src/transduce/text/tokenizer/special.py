"""Special tokens: those that every vocabulary has before training, one for each byte, and language tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

import pydantic

from transduce.config import Config
from transduce.errors import ModelFolderError, SettingsError

Kind = Literal["bpe", "unigram", "wordpiece", "word", "character", "feature", "byte"]

KINDS: tuple[Kind, ...] = get_args(Kind)
LOSSLESS: frozenset[Kind] = frozenset(("bpe", "unigram", "character", "feature", "byte"))
SPELLING: frozenset[str] = frozenset(("character", "feature"))
"""Kinds that spell words in characters, and those that they lack in bytes."""
LETTERS: frozenset[str] = SPELLING | {"byte"}
"""Kinds without subwords."""

PAD, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
"""Special tokens 0, 1, 2, and 3 for the kinds that are not lossless."""

MASK = "<mask>"
"""The mask token: the last token of tokenizers for text encoders."""
SENTINELS = 100
"""Default number of sentinels: tokens that replace what was removed from a text."""


def sentinel_pieces(count: int) -> list[str]:
    """Return the sentinels in order, spelled as T5's."""
    return [f"<extra_id_{number}>" for number in range(count)]


def special_pieces(kind: Kind) -> list[str]:
    """Return the special tokens of a kind in order."""
    return [PAD, START, END] if kind in LOSSLESS else [PAD, START, END, UNKNOWN]


def min_vocab_size(kind: Kind) -> int:
    """Return the smallest possible vocabulary size of a kind."""
    if kind in LOSSLESS:
        return len(special_pieces(kind)) + 256
    characters = 2 if kind == "wordpiece" else 1  # WordPiece: one at the start of a word, one within it
    return len(special_pieces(kind)) + characters


def byte_symbols() -> list[str]:
    """Return the printable character that stands for each byte 0..255 in a byte-level vocabulary.

    Printable Latin-1 bytes are themselves, the others follow from U+0100 on: the table of GPT-2 (Radford et al. 2019).
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def byte_fallbacks() -> list[str]:
    """Return the piece of each byte 0..255 in a vocabulary of characters: `<0x00>` to `<0xFF>`."""
    return [f"<0x{byte:02X}>" for byte in range(256)]


def read_byte_symbols(piece: str) -> str:
    """Return the text of a byte-level piece; incomplete UTF-8 as `<0xNN>`. Special tokens are returned unchanged."""
    if not BYTE_OF.keys() >= set(piece):
        return piece
    text = bytes(BYTE_OF[symbol] for symbol in piece).decode("utf-8", errors="surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


BYTE_OF = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
"""The byte that each symbol of a byte-level vocabulary stands for."""


class Specials(NamedTuple):
    """Special token ids of one side."""

    pad: int
    start: int
    end: int


# Language tags of multilingual models: which token selects the target language, and where it is placed.
#
# The notes of a model (`config.json` of its folder) have a table `tags`:
#
#     "tags": {
#         "place": "source",              where the tag of the target language is: "source", before the source, or
#                                         "target", as the first target token
#         "target_tokens": {"de": 3, …},  the target languages and their tokens (of the source's
#                                         vocabulary for place "source", of the target's for "target")
#         "source_tokens": {"en": 5}      tags of the source languages, placed before the source; omitted for models
#     }                                   without such tags
#
# If a folder has this note, its tokenizers add no language tags of their own (`without_languages`). Models trained here
# have `>>de<<` before the source, as Marian does. M2M100 and NLLB have the tag of the source language before the source
# and that of the target language before the target. The method is of Johnson et al. 2017.

NAME = r"[A-Za-z][A-Za-z0-9_-]{0,31}"
"""Pattern of language names: `de`, `pt-BR`, `zh_Hans`, `deu_Latn`."""

_PIECE = re.compile(f"^>>({NAME})<<$")

Language = Annotated[str, pydantic.Field(pattern=f"^{NAME}$")]


def tag_piece(language: str) -> str:
    """Return the tag of a language in vocabularies trained here."""
    return f">>{language}<<"


def tagged_language(piece: str) -> str | None:
    """Return the language of a tag, None for other pieces."""
    found = _PIECE.match(piece)
    return None if found is None else found[1]


class LanguagePrefix(NamedTuple):
    """Language tags that precede a text."""

    source: list[int]
    """Tokens before the source."""
    target: list[int]
    """Tokens before the target: every translation starts with them."""


NO_PREFIX = LanguagePrefix([], [])


class LanguageTags(Config):
    """The language tags of a model."""

    place: Literal["source", "target"] = "source"
    """Where the tag of the target language is: before the source, or before the target."""
    target_tokens: dict[str, Annotated[int, pydantic.Field(ge=0)]]
    """Tag of each target language."""
    source_tokens: dict[str, Annotated[int, pydantic.Field(ge=0)]] = pydantic.Field(default_factory=dict)
    """Tag of each source language, placed before the source; empty for models without such tags."""

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any], where: str, sizes: tuple[int, int]) -> Self | None:
        """Read the language tags from the notes of a model folder; None if it has none.

        `sizes` are the vocabulary sizes of source and target.
        """
        table = notes.get("tags")
        if table is None:
            return None
        try:
            tags = cls.from_table(table, f"{where}: the note 'tags'")
        except SettingsError as error:
            raise ModelFolderError(f"{error}; copy the folder again") from None
        wanted = sizes[tags.place == "target"]
        if max(tags.target_tokens.values()) >= wanted or max(tags.source_tokens.values(), default=0) >= sizes[0]:
            raise ModelFolderError(f"{where}: the note 'tags' has tokens beyond the vocabulary; copy the folder again")
        return tags

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.target_tokens:
            raise ValueError("target_tokens names no language")
        return self

    @property
    def languages(self) -> list[str]:
        """Target languages in alphabetical order."""
        return sorted(self.target_tokens)

    @property
    def lengths(self) -> tuple[int, int]:
        """Number of tags before every source, and before every target."""
        return bool(self.source_tokens) + (self.place == "source"), int(self.place == "target")

    def prefix(self, target_language: str | None, source_language: str | None = None) -> LanguagePrefix:
        """Return the tags for a translation from `source_language` into `target_language`."""
        target_name = _check_known(target_language, self.target_tokens, "target")
        target, source = [self.target_tokens[target_name]], []
        if self.source_tokens:
            source = [self.source_tokens[_check_known(source_language, self.source_tokens, "source")]]
        return LanguagePrefix([*source, *target], []) if self.place == "source" else LanguagePrefix(source, target)


def _check_known(language: str | None, known: Iterable[str], side: Literal["source", "target"]) -> str:
    """Return a language if the model knows it; the error lists the languages that it knows."""
    names, direction = sorted(known), {"source": "from", "target": "into"}[side]
    if language is None and len(names) == 1:
        return names[0]
    if language is None:
        raise SettingsError(
            f"the model translates {direction} several languages: choose one (--{side}-language {names[0]}, or "
            f"{side}_language of a corpus); available: {listed(names)}"
        )
    if language not in names:
        raise SettingsError(f"the model does not translate {direction} '{language}'; available: {listed(names)}")
    return language


def listed(names: Sequence[str], most: int = 20) -> str:
    """Join names; of more than `most`, the first ones and the number of others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
